"""The mesh and the rule table."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.config import BertConfig, MeshConfig, PretrainConfig
from bert_jax.distributed.mesh import make_mesh
from bert_jax.distributed.sharding import (
    RULES,
    partition_of,
    path_name,
    to_global_arrays,
    tree_shardings,
)
from bert_jax.model.bert import init_params
from bert_jax.model.classifiers import CLASSIFIERS


@pytest.fixture(scope="module")
def paths() -> list[str]:
    params = jax.eval_shape(lambda: init_params(BertConfig.tiny(), jax.random.key(0)))
    return [path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]


def test_every_parameter_has_a_rule(paths):
    assert len(paths) == 2 * 16 + 5 + 5 + 2 + 2
    everywhere = {path for path in paths if partition_of(path) == P()}
    for path in everywhere:
        assert path.endswith(("bias", "scale")), f"{path} is a matrix on every device"


@pytest.mark.parametrize("head", CLASSIFIERS)
def test_the_heads_of_fine_tuning_have_rules(head):
    labels = ("a", "b", "c") if head.endswith("_classification") else ()
    config = BertConfig.tiny(head=head, labels=labels)
    params = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    found = {
        path_name(path): partition_of(path_name(path))
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    }
    assert found["classifier/dense/kernel"] == P("fsdp")
    assert found["classifier/dense/bias"] == P()


def test_every_rule_is_used(paths):
    """Taking a rule away leaves some parameter without one."""
    for number in range(len(RULES)):
        fewer = RULES[:number] + RULES[number + 1 :]
        with pytest.raises(ValueError, match="No sharding rule matches the parameter"):
            {path: partition_of(path, fewer) for path in paths}


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="No sharding rule matches the parameter a/b"):
        partition_of("a/b")


def test_parameters_of_ones_own_are_replicated():
    params = {"my_head": {"bias": np.zeros(2), "kernel": np.zeros((8, 2))}}
    shardings = tree_shardings(make_mesh(MeshConfig(fsdp=8), 8), params)
    assert {leaf.spec for leaf in jax.tree.leaves(shardings)} == {P()}


def test_the_optimizers_moments_follow_their_parameter():
    path = "encoder/layer_0/feed_forward/in/kernel"
    assert partition_of(path) == P("fsdp", "tensor")
    assert partition_of(f"opt_state/0/mu/{path}") == P("fsdp", "tensor")


@pytest.mark.parametrize(
    ("data", "batch_size", "message"),
    [
        (-1, 12, "batch_size=12 is not a multiple of the 8 devices; 16 would be"),
        (3, 8, "batch_size=8 is not a multiple of the 3 devices; 9 would be"),
        (9, 9, "mesh.data=9, mesh.fsdp=1 and mesh.tensor=1 do not make 8 devices"),
    ],
)
def test_what_a_mesh_refuses(data, batch_size, message):
    with pytest.raises(ValueError, match=message):
        make_mesh(MeshConfig(data=data), batch_size)


def test_the_rest_of_the_devices_are_data():
    assert dict(make_mesh(MeshConfig(fsdp=2, tensor=2), 8).shape) == {
        "data": 2,
        "fsdp": 2,
        "tensor": 2,
    }
    with pytest.raises(ValueError, match="fsdp=3 and mesh.tensor=1 do not make 8"):
        make_mesh(MeshConfig(fsdp=3), 8)
    with pytest.raises(ValueError, match="8 devices x 3 microbatches; 48 would be"):
        make_mesh(MeshConfig(), 32, microbatches=3)
    with pytest.raises(ValueError, match="of the 4 microbatches; 8 would be"):
        make_mesh(MeshConfig(1), 6, microbatches=4)


def test_rounded_sums_beside_tensor_would_abort_on_cpu_devices():
    rounded = MeshConfig(tensor=2, reduce_dtype="bfloat16")
    with pytest.raises(ValueError, match="bfloat16 cannot be used with mesh.tensor=2"):
        make_mesh(rounded, 8)
    assert make_mesh(dataclasses.replace(rounded, data=1), 8, 1, jax.devices()[:2])


def test_what_does_not_divide_the_model_is_refused():
    with pytest.raises(ValueError, match="tensor=8 does not divide .*heads=12; 4 wou"):
        PretrainConfig(mesh=MeshConfig(tensor=8))
    with pytest.raises(ValueError, match="fsdp=5 does not divide model.hidden_size"):
        PretrainConfig(mesh=MeshConfig(fsdp=5))


def test_rows_are_spread_over_the_devices():
    mesh = make_mesh(MeshConfig(data=4), 8)
    values = np.arange(16).reshape(8, 2)
    array = to_global_arrays({"x": values}, mesh)["x"]
    np.testing.assert_array_equal(array, values)
    assert [shard.data.shape for shard in array.addressable_shards] == [(2, 2)] * 4
