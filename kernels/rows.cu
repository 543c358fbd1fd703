// One field of one layer, token by token: new rows scattered into blocks, and the rows of given
// positions gathered from them, both through a block table.
//
// A row is what the field keeps for one token. Where it lies follows from the request's block table
// and from the layout of the arena (`ArenaLayout` says why one stride serves all ids):
//
//     id  = table[request, position / block_tokens]
//     row = field_start + id * block_bytes + position % block_tokens * row_bytes
//
// A table's slot that holds no block (0, a hole, or less, padding), or a position outside the table's
// columns, has no row: nothing is written for it, and zeros are gathered.

#include "span.cuh"

// One field in the blocks of one group.
struct Place {
    Size field_start;  // byte where block 0 would have it
    Size block_bytes;  // from one block to the next
    Size row_bytes;
    int block_tokens;
};

struct Table {
    const int* ids;  // [requests, columns]
    int columns;
};

// The rows to move: row i lies at i * row_bytes of `bytes`, and belongs to `positions[i]` of request
// `requests[i]`, a row of the table.
struct Rows {
    Byte* bytes;
    const int* requests;
    const int* positions;
    Size count;
};

// The row's byte offset in the arena, or -1 where it has none.
__device__ __forceinline__ Size row_offset(Table table, Place place, int request, int position)
{
    const int column = position / place.block_tokens;
    if (position < 0 || column >= table.columns) return -1;
    const int id = table.ids[Size(request) * table.columns + column];
    if (id <= 0) return -1;
    return place.field_start + id * place.block_bytes
        + position % place.block_tokens * place.row_bytes;
}

// A warp a row: threads (32, rows a thread block), thread blocks taking rows in turn.
template <bool SCATTERS>
__device__ __forceinline__ void move_rows(Byte* arena, Rows rows, Table table, Place place)
{
    const Team team = {int(threadIdx.x), int(blockDim.x)};
    const Size stride = Size(gridDim.x) * blockDim.y;
    for (Size row = Size(blockIdx.x) * blockDim.y + threadIdx.y; row < rows.count; row += stride) {
        Byte* dense = rows.bytes + row * place.row_bytes;
        const Size offset = row_offset(table, place, rows.requests[row], rows.positions[row]);
        if (offset < 0) {
            if (!SCATTERS) zero_span(dense, place.row_bytes, team);
        } else if (SCATTERS) {
            copy_span(arena + offset, dense, place.row_bytes, team);
        } else {
            copy_span(dense, arena + offset, place.row_bytes, team);
        }
    }
}

// New rows into the arena; no two may have the same place. Grid: any, in x. Block: (32, up to 8).
extern "C" __global__ void __launch_bounds__(256)
scatter_rows(
    Byte* arena,
    Byte* rows,
    const int* requests,
    const int* positions,
    Size count,
    const int* table,
    int columns,
    Size field_start,
    Size block_bytes,
    Size row_bytes,
    int block_tokens)
{
    move_rows<true>(
        arena,
        Rows{rows, requests, positions, count},
        Table{table, columns},
        Place{field_start, block_bytes, row_bytes, block_tokens});
}

// Rows from the arena. Grid: any, in x. Block: (32, up to 8).
extern "C" __global__ void __launch_bounds__(256)
gather_rows(
    Byte* arena,
    Byte* rows,
    const int* requests,
    const int* positions,
    Size count,
    const int* table,
    int columns,
    Size field_start,
    Size block_bytes,
    Size row_bytes,
    int block_tokens)
{
    move_rows<false>(
        arena,
        Rows{rows, requests, positions, count},
        Table{table, columns},
        Place{field_start, block_bytes, row_bytes, block_tokens});
}
