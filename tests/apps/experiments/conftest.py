"""What the tests of experiments share."""

import csv

import pytest
from small_world import SUBJECTS


@pytest.fixture(scope="session")
def task(tmp_path_factory) -> str:
    """Who reads? Two files of texts with the first noun as their class."""
    folder = tmp_path_factory.mktemp("task")
    for split, count in (("train", 24), ("test", 16)):
        with open(folder / f"{split}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["text", "label"])
            for i in range(count):
                who = SUBJECTS[i % 3]
                table.writerow([f"The {who} reads letter {i} in the garden.", who])
    return f"who={folder / 'train.csv'},{folder / 'test.csv'}"
