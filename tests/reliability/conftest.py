"""Fixtures of the reliability suites: good files that they damage copies of."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import specimens
import summary_table
from bad_case import World
from long_lived import Worker

from bert_jax.data.records import Dataset


@pytest.fixture(scope="session")
def good_files(
    corpus: Path,
    tokenizer_directory: Path,
    dataset: Dataset,
    pretrained: Path,
    classifier: Path,
    reviews: Path,
    encoder_checkpoint: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    """Good files, and a folder that all tests share."""
    return World(
        tmp_path_factory.mktemp("good_files"),
        corpus,
        tokenizer_directory,
        Path(dataset.path),
        pretrained,
        classifier,
        reviews,
        encoder_checkpoint,
    )


@pytest.fixture
def world(good_files: World, tmp_path: Path) -> World:
    """Good files, and an empty folder for the bad ones."""
    return dataclasses.replace(good_files, folder=tmp_path)


@pytest.fixture(scope="session")
def worker(good_files: World) -> Iterator[Worker]:
    """A process that reads damaged copies of every kind of file."""
    specimens.write_all(good_files.folder / "specimens", good_files)
    process = Worker(good_files.folder)
    yield process
    process.close()


@pytest.fixture
def record_row(request: pytest.FixtureRequest) -> Callable[[str, int, str, str], None]:
    """Puts a row into the table: the suite, how often, its bar, what came out.

    The seconds are those since the test began. To be called when the test has passed;
    rows of one suite and bar are added up.
    """
    start = time.monotonic()

    def record(name: str, count: int, bar: str, result: str) -> None:
        row = [name, count, bar, result, time.monotonic() - start]
        request.node.user_properties.append((summary_table.PROPERTY, row))

    return record
