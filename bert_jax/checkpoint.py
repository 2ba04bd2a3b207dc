"""Checkpoints: a thin layer over Orbax that knows when a checkpoint is whole.

A step directory holds `state/` (the parameters), `optimizer/` (the rest of the training
state), `config.json`, `tokenizer/`, and `manifest.json`, written last: Orbax alone
would restore flipped bits, and name a newest step whose saving had failed.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import checkpoint_managers as policies

from bert_jax.config_json import write_json
from bert_jax.manifest import describe_files, files_below, write_manifest
from bert_jax.processes import from_first, is_first, together
from bert_jax.sharding import path_name
from bert_jax.whole import absolute
from bert_jax.whole_steps import newest_whole, steps_in


def _shapes(tree: Any) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        path_name(path): (tuple(leaf.shape), str(leaf.dtype))
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def require_same_shapes(item: epath.Path, wanted: Any) -> None:
    """Refuse a saved tree that is not like `wanted`, leaf by leaf.

    Orbax would cast and drop without a word.

    Raises:
        ValueError: a shape or dtype differs, or a leaf is missing or too many.
    """
    a = _shapes(ocp.PyTreeCheckpointHandler().metadata(absolute(item)).tree)
    b = _shapes(wanted)
    wrong = [
        f"{name} is {a.get(name, 'absent')} and should be {b.get(name, 'absent')}"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    ]
    if wrong:
        raise ValueError(
            f"{item} does not fit this run: {'; '.join(wrong[:2])}; {len(wrong)} in "
            "all differ. Repeat the options that it was made with."
        )


def _restore_item(item: epath.Path, wanted: Any) -> Any:
    require_same_shapes(item, wanted)
    return ocp.StandardCheckpointHandler().restore(
        absolute(item), args=ocp.args.StandardRestore(wanted)
    )


def restore_params(step_directory: epath.Path, wanted: Any) -> Any:
    """The parameters of one checkpoint, laid out over the devices.

    Args:
        wanted: their shapes, dtypes and shardings.

    Raises:
        ValueError: a shape or dtype differs, or a leaf is missing or too many.
    """
    return _restore_item(step_directory / "state", wanted)


def restore_step(step_directory: epath.Path, params: Any, rest: Any) -> tuple[Any, Any]:
    """The parameters and the rest of the training state of one checkpoint.

    Arguments and errors are those of `restore_params`.
    """
    restored = restore_params(step_directory, params)
    return restored, _restore_item(step_directory / "optimizer", rest)


class Checkpoints:
    """The checkpoints of a run: saves in the background, keeps the newest and best."""

    def __init__(
        self,
        directory: epath.Path,
        keep: int,
        config: dict[str, Any],
        tokenizer_directory: epath.Path,
    ) -> None:
        """Open, or begin, the checkpoints under `directory`.

        Args:
            keep: how many of the newest to keep; that of most merit stays too.
            config: what `config.json` shall hold.
            tokenizer_directory: whose files every checkpoint shall hold.
        """
        self._directory = directory = absolute(directory)
        self._config = config
        self._tokenizer_directory = tokenizer_directory
        self._thread = ThreadPoolExecutor(1)
        self._completion: Future[None] | None = None
        best = policies.BestN(
            get_metric_fn=lambda metrics: metrics["merit"],
            n=1,
            keep_checkpoints_without_metrics=False,
        )
        options = ocp.CheckpointManagerOptions(
            preservation_policy=policies.AnyPreservationPolicy(
                # Orbax deletes before the new checkpoint has its manifest.
                [policies.LatestN(n=max(keep, 2)), best]
            ),
            # Without it Orbax would forget the metrics, and so the best, on a restart.
            best_fn=best.get_metric_fn,
            cleanup_tmp_directories=True,
            save_root_metadata=False,
        )
        self._manager = ocp.CheckpointManager(directory, options=options)

    def save(self, step: int, params: Any, rest: Any, merit: float | None) -> None:
        """Begin to save; returns once the arrays may change.

        Args:
            merit: what the best checkpoint has most of; None: not known of this step.

        Raises:
            RuntimeError: an earlier checkpoint could not be written.
        """
        self.wait()
        metrics = None if merit is None else {"merit": merit}
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(params), optimizer=ocp.args.StandardSave(rest)
        )
        self._manager.save(step, args=items, metrics=metrics)
        self._completion = self._thread.submit(self._complete, step, merit)

    def _complete(self, step: int, merit: float | None) -> None:
        """Make a saved step whole: its config, its tokenizer, and last its manifest."""
        self._manager.wait_until_finished()
        # Orbax has waited, in its own thread, until every process had written its part.
        if not is_first():
            return
        root = self._directory / str(step)
        write_json(self._config, root / "config.json")
        (root / "tokenizer").mkdir(exist_ok=True)
        for path in self._tokenizer_directory.iterdir():
            path.copy(root / "tokenizer" / path.name, overwrite=True)
        files = describe_files(root, files_below(root))
        manifest = {"step": step, "merit": merit, "files": files}
        write_manifest(manifest, root)

    def restore(self, params: Any, rest: Any) -> tuple[Any, Any, list[str]] | None:
        """The newest whole checkpoint, or None where none was ever finished.

        Checkpoints newer than it are unfinished or damaged; they are removed, because
        the run that goes on will write them again.

        Args:
            params: shapes, dtypes and shardings wanted of the parameters.
            rest: the same of the rest of the training state.

        Returns:
            The parameters, the rest, and what was wrong with newer checkpoints.
        """
        step, problems = self._settle()
        self._manager.reload()
        if step is None:
            return None
        params, rest = restore_step(self._directory / str(step), params, rest)
        return params, rest, problems

    def _settle(self) -> tuple[int | None, list[str]]:
        """The newest whole step, decided by one process for all, and what was newer."""
        found: tuple[int | None, list[str]] = None, []
        with together():
            if is_first():
                found = newest_whole(self._directory)
        step, problems = from_first(found)
        # By now no process is reading the directory; and none goes on before this ends.
        with together():
            if is_first():
                for newer in steps_in(self._directory):
                    if step is None or newer > step:
                        (self._directory / str(newer)).rmtree()
        return step, problems

    @property
    def failed(self) -> bool:
        """Whether the last save has ended badly on this process; `wait` says how."""
        save = self._completion
        return save is not None and save.done() and save.exception() is not None

    def wait(self) -> None:
        """Return when the last save is whole, on all processes together.

        Raises:
            RuntimeError: it could not be written.
        """
        with together():
            self._wait_here()

    def _wait_here(self) -> None:
        completion, self._completion = self._completion, None
        if completion is None:
            return
        try:
            completion.result()
        except Exception as error:
            raise RuntimeError(
                f"A checkpoint in {self._directory} could not be written: {error} "
                "Mend that and start the same command again."
            ) from error

    def close(self) -> None:
        """Finish the last save and let go of the directory.

        Other processes are not waited for: they may have failed.
        """
        self._wait_here()
        self._thread.shutdown()
        self._manager.close()


def read_params(step_directory: epath.Path) -> Any:
    """The parameters of a checkpoint as a nested dict of NumPy arrays."""
    handler = ocp.PyTreeCheckpointHandler()
    item = absolute(step_directory) / "state"
    as_numpy = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray), handler.metadata(item).tree
    )
    return handler.restore(item, args=ocp.args.PyTreeRestore(restore_args=as_numpy))
