"""What a run would be, take and cost."""
