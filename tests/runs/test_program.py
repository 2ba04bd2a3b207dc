"""The collectives that the text of a compiled program has, by hand."""

from bert_jax.runs.program import collectives


def test_collectives_are_counted_by_kind():
    program = """
      %a = f32[8]{0} all-reduce(f32[8] %x), replica_groups={}
      %b = (f32[8]{0}, f32[2]) all-reduce-start(%x, %y)
      %c = (f32[8]{0}, f32[2]) all-reduce-done(%b)
      %d = bf16[4,2]{1,0} all-gather(%z)
      %e = f32[] get-tuple-element(%all-reduce.1), index=0
    """
    assert collectives(program) == {"all-reduce": (2, 72), "all-gather": (1, 16)}


def test_equal_collectives_are_counted_one_by_one():
    """In the entry, in the body of a loop, and in fusions without a chain."""
    same = 'f32[4]{0} all-reduce(%x), channel_id=1, metadata={op_name="psum"}'
    program = f"""
    %body (p: f32[4]) -> f32[4] {{
      %all-reduce.1 = {same}
      %all-reduce.2 = {same}
    }}
    %all-reduce-scatter.1 (p: f32[4]) -> f32[2] {{
      %all-reduce.3 = {same}
    }}
    %all-reduce-scatter.2 (p: f32[4]) -> f32[2] {{
      %all-reduce.4 = {same}
    }}
    ENTRY %main (p: f32[4]) -> f32[4] {{
      %all-reduce.5 = {same}
      %all-reduce.6 = {same}
    }}
    """
    assert collectives(program) == {"all-reduce": (6, 96)}


def test_the_parts_of_a_chain_are_one_collective():
    """A TPU's gather of a kernel, started, beside a product, ended; and another."""

    def gather(name, chain, memory=""):
        attributes = f'frontend_attributes={{chain_id="{chain}"}}'
        layout = f"{{1,0:T(8,128)(2,1){memory}}}"
        metadata = 'metadata={op_name="step/query/all_gather"}'
        return f"{name} = bf16[8,8]{layout} all-gather(%p), {attributes}, {metadata}"

    program = f"""
    %fused_computation.1 (p: bf16[2,8]) -> (bf16[2,8], bf16[8,8]) {{
      {gather("%all-gather.1", 0)}
    }}
    %async_collective_fusion.2 (p: bf16[2,8]) -> (bf16[16,8], bf16[8,8]) {{
      {gather("%all-gather.2", 0, "S(1)")}
    }}
    %fused_computation.3 (p: bf16[2,8]) -> bf16[8,8] {{
      {gather("%all-gather.3", 0)}
    }}
    %fused_computation.4 (p: bf16[2,8]) -> bf16[8,8] {{
      {gather("%all-gather.4", 1)}
    }}
    ENTRY %main (p: bf16[2,8]) -> bf16[8,8] {{
      %all-gather.5 = bf16[8,8]{{1,0}} all-gather(%p), channel_id=1
    }}
    """
    assert collectives(program) == {"all-gather": (3, 3 * 128)}


def test_operands_of_an_asynchronous_start_are_not_results():
    program = """
      %a = ((f32[2], bf16[4]), (f32[8], bf16[16])) all-gather-start(%x, %y)
      %b = (f32[8], bf16[16]) all-gather-done(%a)
      %c = (f32[8], f32[2]) reduce-scatter-start(%x)
      %d = (f32[4], f32[4], u32[], u32[]) collective-permute-start(%x)
    """
    assert collectives(program) == {
        "all-gather": (1, 64),
        "reduce-scatter": (1, 8),
        "collective-permute": (1, 16),
    }


def test_what_is_exchanged_between_slices_is_a_kind_of_its_own():
    attributes = '_xla_megascale_transfer_type="ALL_REDUCE"'
    program = f"""
      %a = f32[8]{{0}} all-reduce(%x), replica_groups={{{{0,1}},{{2,3}}}}
      %s = (f32[4]{{0}}, u32[], token[]) send(%a, %t), attributes={{{attributes}}}
      %r = (f32[4]{{0}}, u32[], token[]) recv(%t), attributes={{{attributes}}}
      %h = (f32[9]{{0}}, u32[], token[]) send(%x, %t), is_host_transfer=true
    """
    assert collectives(program) == {
        "all-reduce": (1, 32),
        "all-reduce between slices": (1, 16),
    }
