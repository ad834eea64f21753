"""Primitives for GPUs: pictures, JSON and Python texts that give the same schedule, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_cases import CASES, TENSOR_CORES, fetch, product, tiled

from autotensor import te
from autotensor.base.errors import AutotensorError, LoweringError, ScheduleError, TargetError
from autotensor.base.target import Target, parse
from autotensor.ir.func import Launch
from autotensor.lowering.pipeline import lower, lower_nest
from autotensor.schedule.schedule import Schedule, create_schedule
from autotensor.schedule.trace import Trace

Golden = Callable[[str], None]
OPENCL, CUDA = parse("opencl"), parse("cuda")


def target_of(name: str) -> Target:
    return CUDA if name in TENSOR_CORES else OPENCL


@pytest.mark.parametrize(
    "name", ["row_sums", "softmax", "double_buffered", "virtual_threads", "tensor_cores_tf32"]
)
def test_loops_and_kernels(name: str, golden: Golden) -> None:
    s = CASES[name]()
    golden("\n\n".join([str(s.trace), str(s), *(str(f) for f in lower(s.state, target_of(name)).run)]))


@pytest.mark.parametrize("name", CASES)
def test_traces_come_back(name: str) -> None:
    s = CASES[name]()
    assert Trace.from_json(s.trace.to_json()) == s.trace
    again = Schedule(s.dag)
    exec(s.trace.to_python(), {"s": again, "te": te})
    assert again.trace == s.trace
    new, names = s.dag.canonical()
    state = s.trace.renamed(names).replay(new)
    mine, theirs = (lower(x, target_of(name)).run for x in (state, s.state))
    assert [f.launch for f in mine] == [f.launch for f in theirs]


def test_thread_axes() -> None:
    assert (
        te.thread_axis("threadIdx.x")
        == te.thread_axis((0, 32), "threadIdx.x")
        == te.ThreadAxis("threadIdx.x")
    )
    with pytest.raises(ScheduleError, match=r"thread axis 'threadIdx.w' is unknown. Known: blockIdx.x"):
        te.thread_axis("threadIdx.w")


def refused(kind: type[AutotensorError], text: str, build: Callable[[], object]) -> None:
    with pytest.raises(kind) as caught:
        build()
    assert text in str(caught.value)


def bound(*pairs: tuple[str, str]) -> Schedule:
    s = create_schedule(product(8, 8, 8))
    for axis, thread in pairs:
        s["C"].bind(axis, thread)
    return s


def test_what_bind_refuses() -> None:
    bind = "bind: "
    refused(ScheduleError, bind + "thread axis 'x' is unknown. Known: blockIdx.x", lambda: bound(("i", "x")))
    refused(
        ScheduleError,
        bind + "axis 'i' of stage 'C' is bound to threadIdx.x already. Fuse the two axes first",
        lambda: bound(("i", "threadIdx.x"), ("j", "threadIdx.x")),
    )
    refused(
        ScheduleError,
        bind + "axis 'i' of stage 'C' is already bound.",
        lambda: bound(("i", "threadIdx.x"), ("i", "blockIdx.x")),
    )
    refused(
        ScheduleError,
        bind + "axis 'k' of stage 'C' is a reduction; blockIdx.x cannot join partial results.",
        lambda: bound(("k", "blockIdx.x")),
    )
    refused(
        ScheduleError,
        "split: axis 'i' of stage 'C' is already bound. Split before marking it.",
        lambda: bound(("i", "threadIdx.x"))["C"].split("i", factor=2),
    )


def copied() -> tuple[Schedule, str]:
    s = create_schedule(product(8, 8, 8))
    copy = s.cache_read("A", "shared", ["C"])
    return s, copy.name


def test_blocks_inside_a_block() -> None:
    s, copy = copied()
    s[copy].compute_at("C", "i")
    refused(
        ScheduleError,
        "bind: stage 'A.shared:C' is computed inside 'C', within one block. Bind blockIdx.x in the "
        "stage at root.",
        lambda: s[copy].bind("i0", "blockIdx.x"),
    )
    s, copy = copied()
    s[copy].bind("i0", "blockIdx.x")
    refused(
        ScheduleError,
        "compute_at: axis 'i0' of stage 'A.shared:C' is bound to blockIdx.x, and inside 'C' there "
        "is one block "
        "only. Attach it instead of binding it to blocks.",
        lambda: s[copy].compute_at("C", "i"),
    )


def test_more_threads_than_get_there() -> None:
    s, copy = copied()
    s["C"].split("i", factor=4)
    s["C"].bind("i.1", "threadIdx.x")
    s[copy].compute_at("C", "j")
    s[copy].bind("i1", "threadIdx.x")
    refused(
        ScheduleError,
        "bind: axis 'i1' of stage 'A.shared:C' needs 8 threads of threadIdx.x; the loop 'C:i.1' "
        "around it has 4. "
        "Split it by 4 first, or attach the stage further out.",
        lambda: lower(s.state, OPENCL),
    )


def test_threads_that_keep_values_for_themselves() -> None:
    s = create_schedule(product(8, 8, 8))
    copy = s.cache_read("A", "local", ["C"])
    s[copy].compute_at("C", "i")
    s[copy].bind("i1", "threadIdx.x")
    refused(
        ScheduleError,
        "bind: axis 'i1' of stage 'A.local:C' is bound to threadIdx.x, but what the stage computes "
        "is kept by each "
        "thread for itself. s['A.local:C'].set_scope(\"shared\"), or leave the axis unbound.",
        lambda: lower(s.state, OPENCL),
    )


def test_a_meeting_that_not_all_can_attend() -> None:
    """Two copies of different sizes: the loop around the second has fewer threads than the block."""
    s = create_schedule(product(8, 8, 8))
    s["C"].split("i", factor=4)
    s["C"].bind("i.1", "threadIdx.x")
    s["C"].bind("i.0", "blockIdx.x")
    wide = s.cache_read("B", "shared", ["C"])
    s[wide].compute_at("C", "i.0")
    s[wide].bind("i1", "threadIdx.x")
    inside = s.cache_read("A", "shared", ["C"])
    s[inside].compute_at("C", "j")
    refused(
        LoweringError,
        "barriers: threads would have to wait for one another under `threadIdx_x < 4`, which not all enter.",
        lambda: lower(s.state, OPENCL),
    )


def test_what_double_buffer_refuses() -> None:
    s = tiled(product(8, 8, 8))
    refused(
        ScheduleError,
        "double_buffer: stage 'C.local' is not attached to a loop and kept in shared memory.",
        lambda: s["C.local"].double_buffer(),
    )
    copy = fetch(s, "A", "C.local", "k.0", (4, 4), 1)
    refused(
        ScheduleError,
        "double_buffer: 5 boxes of stage 'A.shared:C.local' cannot be kept; 2 to 4 can.",
        lambda: s[copy].double_buffer(5),
    )
    s[copy].double_buffer()
    s["C.local"].unroll("k.0")
    refused(
        ScheduleError,
        "double_buffer: loop 'k.0' of 'C.local' is unrolled; its turns do not follow one another.",
        lambda: lower(s.state, OPENCL),
    )


def test_set_scope_of_an_output() -> None:
    refused(
        ScheduleError,
        "set_scope: stage 'C' is an output and stays in global memory. Use cache_write to compute "
        "it near by.",
        lambda: bound()["C"].set_scope("shared"),
    )


def test_a_reduction_over_threads_inside_rows_of_threads() -> None:
    s = bound(("k", "threadIdx.x"))
    s["C"].reorder("k", "i", "j")
    s["C"].bind("i", "threadIdx.y")
    refused(
        ScheduleError,
        "bind: axis 'i' of stage 'C' is bound to threads inside a reduction over threads. Reorder "
        "so that it is "
        "outside.",
        lambda: lower_nest(s.state),
    )


def test_every_kernel_has_its_launch() -> None:
    (kernel,) = lower(CASES["matmul"]().state, OPENCL).run
    assert kernel.launch == Launch((2, 2, 1), (4, 4, 1), 256)
    (kernel,) = lower(CASES["untouched"]().state, OPENCL).run
    assert kernel.launch == Launch((1, 1, 1), (1, 1, 1), 0)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("cuda", "arch", "sm_80"),
        ("cuda -arch=sm_90", "max_shared_bytes", 232448),
        ("cuda -arch=sm_86 -cores=10", "num_cores", 10),
        ("opencl", "max_threads_per_block", 256),
        ("opencl -shared-bytes=65536 -block-threads=1024", "max_shared_bytes", 65536),
        ("opencl -platform=portable", "arch", "portable"),
        ("opencl -platform=portable -device=gpu", "arch", "portable"),
        ("opencl -device=gpu", "warp_size", 32),
        ("opencl", "vector_bytes", parse("llvm").vector_bytes),
    ],
)
def test_targets_without_a_device(text: str, field: str, value: object) -> None:
    target = parse(text)
    assert target.is_gpu
    assert getattr(target, field) == value
    assert Target.from_json(target.to_json()) == target


def test_what_targets_refuse() -> None:
    refused(TargetError, "target arch 'sm_1' is unknown. Known: sm_70", lambda: parse("cuda -arch=sm_1"))
    refused(
        TargetError,
        "target option '-threads=2' is unknown. Known: -platform, -device, -cores, -shared-bytes, "
        "-block-threads, -numerics.",
        lambda: parse("opencl -threads=2"),
    )
    refused(TargetError, "cores must be a positive integer", lambda: parse("cuda -cores=no"))
    refused(
        TargetError,
        "target option '-device=fpga': device is one of cpu, gpu.",
        lambda: parse("opencl -device=fpga"),
    )
    assert not parse("llvm").is_gpu


@pytest.mark.parametrize(
    "options",
    [
        ("llvm", "-mcpu=znver5", "-threads=3", "-numerics=strict"),
        ("cuda", "-arch=sm_90", "-cores=7", "-numerics=strict"),
        ("opencl", "-device=gpu", "-cores=7", "-platform=portable"),
    ],
)
def test_options_of_a_target_stand_in_any_order(options: tuple[str, ...]) -> None:
    kind, *rest = options
    assert parse(" ".join([kind, *reversed(rest)])) == parse(" ".join(options))


def test_opencl_runs_on_cores_unless_a_card_is_meant() -> None:
    cores, card = parse("opencl"), parse("opencl -device=gpu")
    assert (cores.on_cores, card.on_cores, parse("cuda").on_cores, parse("llvm").on_cores) == (
        True,
        False,
        False,
        False,
    )
    processor, host = cores.processor(), parse("llvm")
    assert (processor.kind, processor.vector_bytes, processor.arch) == ("llvm", host.vector_bytes, host.arch)
    assert card.processor() is card
    assert card.key() == f"opencl/generic/v16/t{card.num_cores}/gpu"
