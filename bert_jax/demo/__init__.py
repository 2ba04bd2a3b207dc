"""The whole story on English that every install has."""
