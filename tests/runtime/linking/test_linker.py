"""Our linker: every kind of reference, on both processors; damaged objects; memory."""

from __future__ import annotations

import gc
import os
import re
import struct
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from objects import ANSWERS, FUNCTIONS, OTHER, ZOO, call, compiled_for, ours, zoo

from autotensor.base.errors import ArtifactError
from autotensor.runtime.linking import elf, llvm_linker
from autotensor.runtime.linking.linker import host_machine, link
from autotensor.runtime.linking.relocation import KINDS, STUB_BYTES, Of, stub
from autotensor.runtime.linking.sections import lay_out

BASE = 0x7F12_3456_7000
ROOT = Path(__file__).parents[3]


def check_answers(addresses: dict[str, int]) -> None:
    for name, argument, answer in ANSWERS:
        assert call(addresses[name], argument) == answer, name


@ours
class TestLinking:
    @pytest.mark.parametrize("opt", [0, 1, 3])
    @pytest.mark.parametrize("turned", [False, True])
    def test_every_way_of_referring(self, opt: int, turned: bool) -> None:
        objects = zoo(host_machine(), opt)
        code = link("zoo", objects[::-1] if turned else objects, FUNCTIONS)
        check_answers(code.addresses)

    def test_code_and_constants_are_not_writable_and_data_is_not_executable(self) -> None:
        code = link("zoo", zoo(host_machine()), FUNCTIONS)
        start = min(code.addresses.values()) & ~0xFFF
        with open("/proc/self/maps", encoding="utf-8") as maps:
            lines = [line.split()[:2] for line in maps]
        found = {}
        for span, rights in lines:
            first, _ = (int(x, 16) for x in span.split("-"))
            if start <= first < start + 4 * 4096:
                found[first] = rights
        assert list(found.values())[:2] == ["r-xp", "r--p"]
        assert not any("w" in rights and "x" in rights for rights in found.values())

    def test_memory_is_given_back_with_the_code(self) -> None:
        code = link("zoo", zoo(host_machine()), FUNCTIONS)
        memory, start = weakref.ref(code.keep), min(code.addresses.values()) & ~0xFFF
        del code
        gc.collect()
        assert memory() is None
        with open("/proc/self/maps", encoding="utf-8") as maps:
            assert not any(line.startswith(f"{start:x}-") for line in maps)

    def test_strong_definitions_win_and_two_are_refused(self) -> None:
        weak = compiled_for(
            OTHER.replace("define i64", "define weak i64").replace("1\n", "3\n"), host_machine()
        )
        main, other = zoo(host_machine())
        for objects in ([weak, other, main], [main, other, weak]):
            code = link("z", objects, ["of_another_object"])
            assert call(code.addresses["of_another_object"], 1) == 2
        code = link("z", [main, weak], ["of_another_object"])
        assert call(code.addresses["of_another_object"], 1) == 8
        with pytest.raises(ArtifactError, match="one of its object files defines double_it a second time"):
            link("z", [main, other, other], ["counter"])

    def test_what_is_missing_is_named(self) -> None:
        main, _ = zoo(host_machine())
        with pytest.raises(ArtifactError, match=r"^z calls double_it, which no library here defines"):
            link("z", [main], ["counter"])
        for absent in ("nothing", "shared"):  # the second is not a function
            with pytest.raises(ArtifactError, match=f"^z has no function '{absent}' in its object code"):
                link("z", zoo(host_machine()), [absent])

    def test_code_of_another_processor(self) -> None:
        other = "aarch64" if host_machine() == "x86_64" else "x86_64"
        with pytest.raises(
            ArtifactError, match=f"^z holds code for {other}, this machine is {host_machine()}"
        ):
            link("z", zoo(other), ["counter"])

    def test_thread_local_data_is_refused(self) -> None:
        ir = "@x = thread_local global i64 3\ndefine i64 @f(i64 %n) {\n%v = load i64, ptr @x\nret i64 %v\n}\n"
        with pytest.raises(
            ArtifactError, match=r"one of its object files has a s.* that cannot be loaded|of a kind"
        ):
            link("z", [compiled_for(ir, host_machine())], ["f"])

    def test_more_than_fits(self) -> None:
        ir = "@x = internal global [3000000000 x i8] zeroinitializer\n"
        ir += "define ptr @f() {\n%p = getelementptr i8, ptr @x, i64 5\nret ptr %p\n}\n"
        with pytest.raises(ArtifactError, match="one of its object files has sections of 3000"):
            link("z", [compiled_for(ir, host_machine())], ["f"])

    def test_no_memory_is_a_sentence(self) -> None:
        script = (
            "import resource; from objects import *; from autotensor.runtime.linking.linker import *\n"
            "o = compiled_for('@x = global [500000000 x i8] zeroinitializer\\n' + OTHER, host_machine())\n"
            "resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))\n"
            "try: link('z', [o], ['double_it'])\n"
            "except Exception as error: print(error)\n"
        )
        assert "z: no room for 5000" in run(script).stdout

    def test_a_system_that_forbids_it_is_a_sentence(self) -> None:
        """As under systemd's MemoryDenyWriteExecute, memory that was written may not be executed."""
        script = (
            "import ctypes; from objects import *; from autotensor.runtime.linking.linker import *\n"
            "o = compiled_for(OTHER, host_machine())\n"
            "if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0): print('not here')\n"
            "try: link('z', [o], ['double_it'])\n"
            "except Exception as error: print(error)\n"
        )
        said = run(script).stdout
        if said.startswith("not here"):
            pytest.skip("Linux before 6.3")
        assert said == "z: this system does not let its code be executed: Permission denied.\n"


def test_llvm_links_where_we_do_not() -> None:
    addresses, keep = llvm_linker.link("zoo", zoo(host_machine()), FUNCTIONS)
    check_answers(addresses)
    del keep
    with pytest.raises(ArtifactError, match=r"^z: its object code cannot be loaded: .*"):
        llvm_linker.link("z", [compiled_for(OTHER, host_machine())], ["nothing"])


class TestEncodings:
    """Words of instructions from the Arm and AMD64 manuals, or from their assemblers."""

    @pytest.mark.parametrize(
        ("kind", "old", "value", "new"),
        [
            (283, 0x94000000, 8, 0x94000002),  # bl #8
            (282, 0x14000000, -4, 0x17FFFFFF),  # b #-4
            (283, 0x94000000, -(1 << 27), 0x96000000),
            (280, 0xB4000000, 8, 0xB4000040),  # cbz x0, #8
            (279, 0x36000000, 8, 0x36000040),  # tbz w0, #0, #8
            (273, 0x58000000, 8, 0x58000040),  # ldr x0, #8
            (274, 0x10000000, 5, 0x30000020),  # adr x0, #5
            (275, 0x90000000, 0x1000, 0xB0000000),  # adrp x0, #0x1000
            (275, 0x90000010, -0x1000, 0xF0FFFFF0),  # adrp x16, #-0x1000
            (275, 0x90000000, 0xFFFFF000, 0xF07FFFE0),  # the farthest
            (277, 0x91000000, 0x7F0000000123, 0x91048C00),  # add x0, x0, #0x123
            (278, 0x39400000, 0x123, 0x39448C00),  # ldrb w0, [x0, #0x123]
            (284, 0x79400000, 0x122, 0x79424400),  # ldrh w0, [x0, #0x122]
            (285, 0xB9400000, 0x124, 0xB9412400),  # ldr w0, [x0, #0x124]
            (286, 0xF9400000, 8, 0xF9400400),  # ldr x0, [x0, #8]
            (299, 0x3DC00000, 16, 0x3DC00400),  # ldr q0, [x0, #16]
            (312, 0xF9400000, 0x7F0000000FF8, 0xF947FC00),  # ldr x0, [x0, #0xff8]
            (313, 0xF9400000, 0x7FF8, 0xF97FFC00),
            (258, 0, 0xFFFFFFFF, 0xFFFFFFFF),
            (261, 0, -8, 0xFFFFFFF8),
            (257, 0, -8, 0xFFFFFFFFFFFFFFF8),
            (277, 0x913FFC00, 0, 0x91000000),  # the old offset is replaced
        ],
    )
    def test_aarch64(self, kind: int, old: int, value: int, new: int) -> None:
        assert f"{KINDS['aarch64'][kind].put(old, value):#x}" == f"{new:#x}"

    @pytest.mark.parametrize(
        ("machine", "kind", "value"),
        [
            ("aarch64", 283, 1 << 27), ("aarch64", 283, -(1 << 27) - 4), ("aarch64", 283, 2),
            ("aarch64", 280, 1 << 20), ("aarch64", 279, 1 << 15), ("aarch64", 274, 1 << 20),
            ("aarch64", 275, 1 << 32), ("aarch64", 286, 4), ("aarch64", 299, 8), ("aarch64", 284, 1),
            ("aarch64", 313, 1 << 15), ("aarch64", 258, 1 << 32), ("aarch64", 261, 1 << 31),
            ("x86_64", 2, 1 << 31), ("x86_64", 2, -(1 << 31) - 1), ("x86_64", 10, -1),
            ("x86_64", 10, 1 << 32), ("x86_64", 11, 1 << 31), ("x86_64", 42, 1 << 31),
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused(self, machine: str, kind: int, value: int) -> None:
        with pytest.raises(
            ValueError, match=r"does not fit into|is not a multiple of|is not one of the first"
        ):
            KINDS[machine][kind].put(0, value)

    def test_stubs(self) -> None:
        assert stub("x86_64", 0x1000, 0x3008)[:6] == b"\xff\x25" + struct.pack("<i", 0x2002)
        words = struct.unpack("<4I", stub("aarch64", 0x1000, 0x3008))
        assert words[:3] == (
            0xD0000010,
            0xF9400611,
            0xD61F0220,
        )  # adrp x16, 0x3000; ldr x17, [x16, #8]; br x17
        with pytest.raises(ValueError, match="does not fit"):
            stub("x86_64", 0, 1 << 32)


def written(machine: str, opt: int = 1) -> tuple[object, bytearray]:
    layout = lay_out([elf.read(o) for o in zoo(machine, opt)], machine)
    memory = bytearray(layout.ends[-1])
    layout.write(memory, BASE, dict.fromkeys(layout.outside, 0x5555_0000_1234))
    return layout, memory


class TestAarch64:
    """Without such a machine: the test reads the computed addresses from the words of the instructions."""

    @pytest.mark.parametrize("opt", [0, 1, 3])
    def test_instructions_lead_to_their_targets(self, opt: int) -> None:
        layout, memory = written("aarch64", opt)
        seen = set()
        for use in layout.uses:
            at = layout.starts[use.section] + use.relocation.offset
            want = self.target(layout, use)
            word = int.from_bytes(memory[at : at + 4], "little")
            seen.add(use.relocation.kind)
            match use.relocation.kind:
                case 282 | 283:
                    assert at + (((word & 0x3FFFFFF) ^ 0x2000000) - 0x2000000) * 4 == want
                case 275 | 311:
                    assert word & 0x9F000000 == 0x90000000
                    pages = ((word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3) ^ 0x100000
                    assert (BASE + at & ~0xFFF) + ((pages - 0x100000) << 12) == BASE + want & ~0xFFF
                case 277 | 278:
                    assert word >> 10 & 0xFFF == BASE + want & 0xFFF
                case 286 | 312:
                    assert (word >> 10 & 0xFFF) * 8 == BASE + want & 0xFFF
                case 257:
                    assert int.from_bytes(memory[at : at + 8], "little") == BASE + want
                case 261:
                    assert at + int.from_bytes(memory[at : at + 4], "little", signed=True) == want
                case other:
                    raise AssertionError(f"nobody looks at {other}")
        assert seen >= {283, 275, 277, 311, 312, 257}

    @staticmethod
    def target(layout, use) -> int:
        number, symbol = use.target
        addend = use.relocation.addend
        if use.kind.of is Of.SLOT:
            return layout.slots[use.target] + addend
        if use.target in layout.stubs:
            return layout.stubs[use.target] + addend
        return layout.starts[number, symbol.section] + symbol.value + addend

    def test_the_table_holds_addresses(self) -> None:
        layout, memory = written("aarch64")
        assert len(layout.stubs) == 1
        for (_, symbol), slot in layout.slots.items():
            held = int.from_bytes(memory[slot : slot + 8], "little")
            assert held == 0x5555_0000_1234 if symbol.is_undefined else BASE <= held < BASE + len(memory)

    def test_an_emulated_processor_runs_it(self) -> None:
        unicorn = pytest.importorskip("unicorn")
        from unicorn import arm64_const as arm

        layout, memory = written("aarch64")
        for at in layout.stubs.values():
            assert len(memory[at : at + STUB_BYTES]) == STUB_BYTES
        layout.write(memory := bytearray(len(memory)), BASE, {"llabs": 0x10_0000, "nobody_has_this": 0})
        cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        code, constants, data = layout.ends
        for start, end, rights in ((0, code, 5), (code, constants, 1), (constants, data, 3)):
            cpu.mem_map(BASE + start, end - start, rights)
            cpu.mem_write(BASE + start, bytes(memory[start:end]))
        cpu.mem_map(0x10_0000, 0x1000, 5)
        cpu.mem_write(0x10_0000, struct.pack("<3I", 0xF100001F, 0xDA80A400, 0xD65F03C0))  # llabs
        cpu.mem_map(0x20_0000, 0x10000)
        for name, argument, answer in ANSWERS:
            cpu.reg_write(arm.UC_ARM64_REG_SP, 0x20_8000)
            cpu.reg_write(arm.UC_ARM64_REG_X30, 0x10_0800)
            cpu.reg_write(arm.UC_ARM64_REG_X0, argument)
            cpu.emu_start(BASE + layout.function(name), 0x10_0800, count=1000)
            assert cpu.reg_read(arm.UC_ARM64_REG_X0) == answer, name


def run(script: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, timeout=timeout_s,
    )  # fmt: skip


def damaged(seed: int, count: int) -> tuple[int, int, int]:
    """The numbers of damaged objects that are loaded and refused, and of different refusals."""
    done = run(f"import mutations; mutations.main({seed}, {count})")
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    loaded, refused, kinds = map(int, done.stdout.split())
    return loaded, refused, kinds


@ours
class TestDamage:
    """Numbers of the file are changed one by one, to near, large or special values."""

    def test_damaged_objects_are_a_sentence(self) -> None:
        loaded, refused, kinds = damaged(0, 1500)
        assert loaded + refused == 1500
        assert refused > 600
        assert kinds > 10

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 11))
    def test_many_damaged_objects_are_a_sentence(self, seed: int) -> None:
        loaded, refused, _ = damaged(seed, 20_000)
        assert loaded + refused == 20_000

    @pytest.mark.parametrize(
        ("at", "width", "value", "says"),
        [
            (4, 1, 1, "is not a 64-bit little-endian relocatable object"),
            (16, 2, 3, "is not a 64-bit little-endian relocatable object"),
            (0, 4, 0, "is not a 64-bit little-endian relocatable object"),
            (40, 8, 1 << 60, "is cut short"),
            (58, 2, 63, "has a header that makes no sense"),
            (62, 2, 0xFFF, "has a header that makes no sense"),
        ],
    )
    def test_header(self, at: int, width: int, value: int, says: str) -> None:
        data = bytearray(zoo(host_machine())[0])
        data[at : at + width] = value.to_bytes(width, "little")
        with pytest.raises(ArtifactError, match=f"^z: one of its object files ({says})"):
            link("z", [bytes(data)], ["counter"])

    @pytest.mark.parametrize(
        ("kind", "field", "width", "value", "says"),
        [
            (1, 24, 8, 1 << 40, "has a section [0-9]+ that ends beyond it"),
            (1, 24, 8, 3, "has sections that overlap"),
            (1, 48, 8, 3, r"has a section '.*' aligned to 3 bytes"),
            (1, 48, 8, 1 << 30, r"has a section '.*' aligned to 1073741824 bytes"),
            (1, 8, 8, 7, r"has a section '.*' that cannot be loaded \(flags 0x7\)"),
            (1, 4, 4, 99, r"has a section '.*' of a kind that is not loaded here"),
            (2, 56, 8, 23, "has a table of symbols that makes no sense"),
            (2, 40, 4, 0, "has a section 0 that is not a table of names"),
            (4, 56, 8, 8, "has relocations of '.*' that make no sense"),
            (4, 40, 4, 0, "has relocations of '.*' without symbols"),
        ],
    )
    def test_sections(self, kind: int, field: int, width: int, value: int, says: str) -> None:
        data = bytearray(zoo(host_machine())[0])
        self.set(data, self.section(data, kind) + field, width, value)
        with pytest.raises(ArtifactError, match=f"^z: one of its object files ({says})"):
            link("z", [bytes(data)], ["counter"])

    @pytest.mark.parametrize(
        ("kind", "field", "width", "value", "says"),
        [
            (4, 0, 8, 1 << 40, "has a relocation outside '.text', or of a symbol that is not there"),
            (4, 12, 4, 1 << 30, "has a relocation outside '.text', or of a symbol that is not there"),
            (4, 8, 4, 200, r"has a relocation of a kind that is not known here \(200\)"),
            (4, 16, 8, 1 << 40, "has a R_.* in '.text' that cannot be: .* does not fit into .* bits"),
            (4, 12, 4, 0, "has a R_.* in '.text' of no symbol"),
            (2, 24, 4, 1 << 30, "has a name that is outside its table"),
            (2, 28, 1, 0x1A, r"has a symbol .* of a kind that is not loaded here \(0x1a\)"),
            (2, 30, 2, 0xFFF2, "has a symbol .* in a section 65522 that is not there"),
        ],
    )
    @pytest.mark.skipif(host_machine() != "x86_64", reason="kinds of x86-64")
    def test_entries(self, kind: int, field: int, width: int, value: int, says: str) -> None:
        data = bytearray(zoo(host_machine())[0])
        offset = struct.unpack_from("<Q", data, self.section(data, kind) + 24)[0]
        if kind == 2:  # the first global symbol
            offset += 24 * (struct.unpack_from("<I", data, self.section(data, kind) + 44)[0] - 1)
        self.set(data, offset + field, width, value)
        with pytest.raises(ArtifactError, match=f"^z: one of its object files ({says})"):
            link("z", [bytes(data), zoo(host_machine())[1]], ["counter"])

    @staticmethod
    def set(data: bytearray, at: int, width: int, value: int) -> None:
        data[at : at + width] = value.to_bytes(width, "little")

    @staticmethod
    def section(data: bytes, kind: int) -> int:
        """The offset of the header of the first loaded section of a kind, or of its only section."""
        table = struct.unpack_from("<Q", data, 40)[0]
        heads = range(table, table + 64 * struct.unpack_from("<H", data, 60)[0], 64)
        found = [h for h in heads if struct.unpack_from("<I", data, h + 4)[0] == kind]
        if kind == 1:
            found = [h for h in found if struct.unpack_from("<Q", data, h + 32)[0]]
        return found[0]

    def test_many_names_in_few_bytes(self) -> None:
        """20,000 symbols, each named by all but the first letters of one name."""
        names = b"\0" + b"f" * 4000 + b"\0"
        symbols = bytes(24) + b"".join(
            struct.pack("<IBBHQQ", 1 + n % 100, 0x10, 0, 0, 0, 0) for n in range(20_000)
        )
        heads = [(0, 0, 0, 0), (3, 64, len(names), 0), (2, 64 + len(names), len(symbols), 24)]
        table = b"".join(
            struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, at, size, 1, 1, 1, each)
            for kind, at, size, each in heads
        )
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        machine = {"x86_64": 62, "aarch64": 183}[host_machine()]
        end = 64 + len(names) + len(symbols)
        head = struct.pack("<16sHHIQQQIHHHHHH", ident, 1, machine, 1, 0, 0, end, 0, 64, 0, 0, 64, 3, 1)
        with pytest.raises(ArtifactError, match=r"^z: one of its object files has names of more than 64 MB"):
            link("z", [head + names + symbols + table], ["f"])

    def test_a_name_without_end(self) -> None:
        long = "f" * 5000
        with pytest.raises(ArtifactError, match=r"^z: one of its object files has a name of 5000 bytes"):
            link("z", [compiled_for(OTHER.replace("double_it", long), host_machine())], [long])


def test_names_of_kinds_are_those_of_their_processor() -> None:
    for machine, kinds in KINDS.items():
        for kind in kinds.values():
            assert re.fullmatch(r"R_(X86_64|AARCH64)_[A-Z0-9_]+", kind.name), machine
    assert ZOO.count("define") == len(FUNCTIONS)
