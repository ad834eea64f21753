"""tile sums: in a kernel's own buffer, the sums of an instruction of tiles are stored tile by tile.

    C.near[64, 32], tiles of 14 x 16    ──▶    C.near[5, 2, 14, 16]
    C.near[i, j]                        ──▶    C.near[i//14, j//16, i%14, j%16]

Then the sums of a tile are one vector, and one register holds it. Other buffers keep their layout.
"""

from __future__ import annotations

from math import ceil

from autotensor.codegen.dot_instructions import takes_tiles
from autotensor.ir.expr import Const, Expr, Load, const
from autotensor.ir.func import Buffer, Scope
from autotensor.ir.node import Node
from autotensor.ir.rewrite import transform
from autotensor.ir.stmt import Alloc, For, Stmt, Store
from autotensor.ir.visit import collect, free_vars

Places = tuple[int, int]  # positions of the dimensions of rows and of columns
Tiles = dict[Buffer, tuple[Places, int, int]]  # the dimensions, and the rows and columns of a tile


def tile_sums(body: Stmt) -> Stmt:
    """The body with sums of tiles stored tile by tile."""
    marked = [s for s in collect(body, For) if takes_tiles(s.thread)]
    if not marked:
        return body
    private = {s.buffer for s in collect(body, Alloc) if s.buffer.scope is Scope.LOCAL}
    tiles: Tiles = {}
    for loop in marked:
        for buffer, (places, rows, columns) in _sums(loop).items():
            if buffer in private:
                before = tiles.get(buffer, (places, 1, columns))
                tiles[buffer] = (places, max(rows, before[1]), columns)
    return _laid_out(body, {b: (*tile, _tiled(b, *tile)) for b, tile in tiles.items()})


def _sums(loop: For) -> Tiles:
    """The buffers to which a marked loop adds; a tile of one row has no loop over rows."""
    extents = {s.var: int(s.extent.value) for s in collect(loop, For) if isinstance(s.extent, Const)}
    found: Tiles = {}
    for store in collect(loop, Store):
        along = [n for n, i in enumerate(store.indices) if loop.var in free_vars(i)]
        if len(along) != 1 or len(store.indices) < 2:
            continue
        (column,) = along
        own = {
            v: n for n, i in enumerate(store.indices) for v in free_vars(i) if v in extents and n != column
        }
        row, rows = max(
            ((n, extents[v]) for v, n in own.items()), default=(column - 1, 1), key=lambda r: r[1]
        )
        found[store.buffer] = ((row, column), rows, extents[loop.var])
    return found


def _tiled(b: Buffer, places: Places, rows: int, columns: int) -> Buffer:
    row, column = places
    others = [n for d, n in enumerate(b.shape) if d not in places]
    grid = ceil(b.shape[row] / rows), ceil(b.shape[column] / columns)
    return Buffer(b.name, (*others, *grid, rows, columns), b.dtype, b.scope)


def _laid_out(body: Stmt, tiles: dict[Buffer, tuple[Places, int, int, Buffer]]) -> Stmt:
    def at(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        (row, column), rows, columns, _ = tiles[buffer]
        others = (i for d, i in enumerate(indices) if d not in (row, column))
        i, j, r, c = indices[row], indices[column], const(rows), const(columns)
        return (*others, i // r, j // c, i % r, j % c)

    def visit(node: Node) -> Node | None:
        match node:
            case Alloc(buffer, inside) if buffer in tiles:
                return Alloc(tiles[buffer][3], inside)
            case Load(buffer, indices, mask) if buffer in tiles:
                return Load(tiles[buffer][3], at(buffer, indices), mask)
            case Store(buffer, indices, value, mask) if buffer in tiles:
                return Store(tiles[buffer][3], at(buffer, indices), value, mask)
        return None

    return transform(body, visit)
