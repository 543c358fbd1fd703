// Whole blocks, or one layer's part of each: zeroed, or copied between two arenas.
//
// An arena is a base address and blocks are byte offsets into it. Either arena of a copy may be in
// pinned host memory that is mapped into the device's address space: then the threads themselves
// read or write across the bus, and one launch moves any number of small blocks, where the copy
// engine would be started once a block.
//
// The work is cut into tiles, so that few large blocks and many small ones keep all threads busy
// alike. The grid may be of any size: its thread blocks take tiles in turn. A small grid leaves the
// other multiprocessors to the forward that runs beside it.

#include "span.cuh"

// What a thread block of 256 moves in one turn with all its loads under way: 256 * 4 * 16 bytes.
constexpr Size TILE_BYTES = 16384;

// Tiles are counted in 32 bits, which stand for 64 TiB: a division of 64 bits, once a tile, would
// cost more than zeroing the tile does.
typedef unsigned int Count;

__device__ __forceinline__ Count tiles_per_block(Size nbytes)
{
    return Count((nbytes + TILE_BYTES - 1) / TILE_BYTES);
}

// One tile: `nbytes` from byte `start` of block number `block` of the list.
struct Tile {
    Count block;
    Size start;
    Size nbytes;
};

__device__ __forceinline__ Tile tile_at(Count index, Size block_nbytes)
{
    const Count tiles = tiles_per_block(block_nbytes);
    const Size start = index % tiles * TILE_BYTES;
    const Size rest = block_nbytes - start;
    return Tile{index / tiles, start, rest < TILE_BYTES ? rest : TILE_BYTES};
}

// Zeroes `nbytes` from each of `count` offsets. Grid: any, in x. Block: up to 256, in x.
extern "C" __global__ void __launch_bounds__(256)
zero_blocks(Byte* base, const Size* __restrict__ offsets, Size count, Size nbytes)
{
    const Team team = {int(threadIdx.x), int(blockDim.x)};
    const Count tiles = Count(count) * tiles_per_block(nbytes);
    for (Count index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_at(index, nbytes);
        zero_span(base + offsets[tile.block] + tile.start, tile.nbytes, team);
    }
}

// Copies `nbytes` from each source offset to the target offset of the same place in the list. No
// target may overlap another target or a source. Grid: any, in x. Block: up to 256, in x.
extern "C" __global__ void __launch_bounds__(256)
copy_blocks(
    Byte* target,
    const Byte* source,
    const Size* __restrict__ target_offsets,
    const Size* __restrict__ source_offsets,
    Size count,
    Size nbytes)
{
    const Team team = {int(threadIdx.x), int(blockDim.x)};
    const Count tiles = Count(count) * tiles_per_block(nbytes);
    for (Count index = blockIdx.x; index < tiles; index += gridDim.x) {
        const Tile tile = tile_at(index, nbytes);
        copy_span(
            target + target_offsets[tile.block] + tile.start,
            source + source_offsets[tile.block] + tile.start,
            tile.nbytes,
            team);
    }
}
