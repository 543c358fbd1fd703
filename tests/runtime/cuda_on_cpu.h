// Just enough of CUDA to compile `kernels/*.cu` as plain C++, one thread after the other: what the
// tests include ahead of a kernel's source. A kernel without barriers and shared memory computes the
// same bytes so. Loads and stores are counted, and those at an address that the GPU would refuse.

#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct Dim3 {
    unsigned int x, y, z;
};

struct uint4 {
    unsigned int x, y, z, w;
};

inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w)
{
    return uint4{x, y, z, w};
}

extern "C" {
Dim3 threadIdx, blockIdx, blockDim, gridDim;
long long bytes_loaded, bytes_stored, accesses, misaligned;
}

template <typename Word>
void watch(const Word* at, long long& bytes)
{
    bytes += sizeof(Word);
    accesses += 1;
    misaligned += reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) != 0;
}

template <typename Word>
Word __ldcs(const Word* at)
{
    watch(at, bytes_loaded);
    return *at;
}

template <typename Word>
void __stcs(Word* at, Word value)
{
    watch(at, bytes_stored);
    *at = value;
}
