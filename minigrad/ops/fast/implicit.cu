// Convolution of channels-last images as products of matrices, whose windows are never written to memory
// (implicit GEMM). Below, "windows" is the matrix with a row for each output pixel and a column for each
// number that its window sees, in the order (tap, channel), and "kernel" the weights as (tap, channel) x F.
//
// All sizes are macros, so that the compiler divides by constants:
//   T                    float or double
//   GROUPS, C, F         groups of channels; the channels and the filters of one group
//   H, W, ROWS, COLS     the sizes of the images and of the outputs
//   KH, KW, DH, DW       a window's taps and how far they are apart
//   DOWN, ACROSS, PH, PW how far windows are apart; the padding
//   UP, OVER             how far the images' pixels are apart: 1, but the stride in an image gradient
//   RELU, POOL           outputs become max(y, 0); the largest of POOL x POOL neighbours is written (1 or 2)
//   IN_POOL              0, or the images are the gradient of outputs with POOL = IN_POOL or a ReLU
//   BM, BN, BK, TM, TN   a block computes BM x BN sums, a thread TM x TN, from BK terms at a time
#define K (KH * KW * C)
#define POOLED (POOL * POOL)
#define PIXELS (ROWS / POOL * (COLS / POOL) * POOLED)  // of an image; those that are pooled follow each other
#define SIDE (IN_POOL ? IN_POOL : 1)
#define NONE 255  // the winner where the ReLU lets no gradient through
#define THREADS (BM / TM * (BN / TN))

struct alignas(16) Four {
    T at[4];
};

struct Window {  // where the window of an output begins on the images
    int image, top, left;
};

struct Seen {  // where the numbers lie that a window sees at a tap, or -1; the number among the neighbours
    ptrdiff_t offset;
    int number;
};

__device__ inline Window window_of(int m, int count) {
    if (m >= count) { return {0, -(1 << 28), 0}; }  // sees padding alone
    int pooled = m % PIXELS / POOLED, number = m % POOLED;
    int row = pooled / (COLS / POOL) * POOL + number / POOL;
    int column = pooled % (COLS / POOL) * POOL + number % POOL;
    return {m / PIXELS, row * DOWN - PH, column * ACROSS - PW};
}

__device__ inline Seen seen_by(Window window, int tap, int group) {
    int row = window.top + tap / KW * DH, column = window.left + tap % KW * DW;
    if (row < 0 || column < 0 || row % UP || column % OVER) { return {-1, 0}; }
    row /= UP;
    column /= OVER;
    if (row >= H / SIDE * SIDE || column >= W / SIDE * SIDE) { return {-1, 0}; }
    ptrdiff_t pixel = ((ptrdiff_t)window.image * (H / SIDE) + row / SIDE) * (W / SIDE) + column / SIDE;
    return {(pixel * GROUPS + group) * C, row % SIDE * SIDE + column % SIDE};
}

// Four gradients of outputs, where the pixel called ``number`` was the largest of its neighbours; else 0.
__device__ inline Four share_of(Four g, const unsigned char *__restrict__ winners, int number) {
    uchar4 winner = *(const uchar4 *)winners;
    if (winner.x != number) { g.at[0] = 0; }
    if (winner.y != number) { g.at[1] = 0; }
    if (winner.z != number) { g.at[2] = 0; }
    if (winner.w != number) { g.at[3] = 0; }
    return g;
}

// Columns k to k + 3 of a row of the windows.
__device__ inline Four four_of_window(
    const T *__restrict__ x, const unsigned char *__restrict__ winners, Window window, int group, int k) {
    Four values = {};
#if C % 4 == 0
    if (k >= K) { return values; }
    Seen seen = seen_by(window, k / C, group);
    if (seen.offset < 0) { return values; }
    values = *(const Four *)(x + seen.offset + k % C);
    return IN_POOL ? share_of(values, winners + seen.offset + k % C, seen.number) : values;
#else
    for (int j = 0; j < 4 && k + j < K; ++j) {
        Seen seen = seen_by(window, (k + j) / C, group);
        ptrdiff_t i = seen.offset + (k + j) % C;
        if (seen.offset >= 0 && !(IN_POOL && winners[i] != seen.number)) { values.at[j] = x[i]; }
    }
    return values;
#endif
}

// Columns f to f + 3 of a row with F columns.
__device__ inline Four four_of_row(const T *__restrict__ row, int f) {
    Four values = {};
#if F % 4 == 0
    if (f < F) { values = *(const Four *)(row + f); }
#else
    for (int j = 0; j < 4 && f + j < F; ++j) { values.at[j] = row[f + j]; }
#endif
    return values;
}

// A thread's N numbers of a tile are groups of four, TILE / (N / 4) apart, so that neighbouring threads read
// neighbouring banks of shared memory: number i is this one of the tile.
template <int N, int TILE> __device__ inline int place_in_tile(int thread, int i) {
    return i / 4 * (TILE / (N / 4)) + thread * 4 + i % 4;
}

// A thread's N numbers of a row in shared memory, in which ``swap`` has exchanged groups of eight.
template <int N, int TILE> __device__ inline void read(const T *row, int thread, int swap, T *values) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        *(Four *)(values + i) = *(const Four *)(row + (place_in_tile<N, TILE>(thread, i) ^ swap));
    }
}

__device__ inline void multiply_add(const T *a, const T *b, T (*total)[TN]) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) { total[i][j] += a[i] * b[j]; }
    }
}

// y (count / POOLED, GROUPS F) = windows (count, K) times kernel (K, F), pooled, plus bias, with a ReLU. A
// grid of (count / BM, F / BN, GROUPS) blocks. ``winners`` gets the number of the largest neighbour, which is
// the first one or the last NaN; ``in_winners`` has it of the images, if these are a gradient.
extern "C" __global__ void __launch_bounds__(THREADS) correlate(
    const T *__restrict__ x, const unsigned char *__restrict__ in_winners, const T *__restrict__ w,
    const T *__restrict__ bias, T *__restrict__ y, unsigned char *__restrict__ winners, int count) {
    alignas(16) __shared__ T windows[2][BK][BM], kernel[2][BK][BN];  // two: one is read while one is written
    constexpr int QUADS_OF_K = BK / 4, PIXELS_AT_ONCE = THREADS / QUADS_OF_K, PASSES = BM / PIXELS_AT_ONCE;
    constexpr int QUADS_OF_F = BN / 4, FITTING = THREADS / QUADS_OF_F;
    constexpr int ROWS_AT_ONCE = FITTING < BK ? FITTING : BK, KERNEL_PASSES = BK / ROWS_AT_ONCE;
    int t = threadIdx.x, tx = t % (BN / TN), ty = t / (BN / TN), group = blockIdx.z;
    int first = blockIdx.x * BM, filter = blockIdx.y * BN;
    int quad = t % QUADS_OF_K, pixel = t / QUADS_OF_K;
    int kernel_quad = t % QUADS_OF_F, kernel_row = t / QUADS_OF_F;
    Window own[PASSES];
#pragma unroll
    for (int i = 0; i < PASSES; ++i) { own[i] = window_of(first + pixel + i * PIXELS_AT_ONCE, count); }
    Four next[PASSES], next_kernel[KERNEL_PASSES];
    T total[TM][TN] = {};

    auto load = [&](int k0) {  // into registers, while the terms before are multiplied
#pragma unroll
        for (int i = 0; i < PASSES; ++i) {
            next[i] = four_of_window(x, in_winners, own[i], group, k0 + 4 * quad);
        }
#pragma unroll
        for (int i = 0; i < KERNEL_PASSES; ++i) {
            int k = k0 + kernel_row + i * ROWS_AT_ONCE;
            next_kernel[i] = Four{};
            if (k < K && kernel_row < ROWS_AT_ONCE) {
                next_kernel[i] = four_of_row(w + ((ptrdiff_t)group * K + k) * F, filter + 4 * kernel_quad);
            }
        }
    };
    auto store = [&](int s) {
#pragma unroll
        for (int i = 0; i < PASSES; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                windows[s][4 * quad + j][(pixel + i * PIXELS_AT_ONCE) ^ (quad % 4 * 8)] = next[i].at[j];
            }
        }
        if (kernel_row < ROWS_AT_ONCE) {
#pragma unroll
            for (int i = 0; i < KERNEL_PASSES; ++i) {
                *(Four *)&kernel[s][kernel_row + i * ROWS_AT_ONCE][4 * kernel_quad] = next_kernel[i];
            }
        }
    };

    load(0);
    store(0);
    __syncthreads();
    for (int k0 = 0, s = 0; k0 < K; k0 += BK, s ^= 1) {
        if (k0 + BK < K) { load(k0 + BK); }
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            alignas(16) T a[TM], b[TN];
            read<TM, BM>(windows[s][k], ty, k / 4 % 4 * 8, a);
            read<TN, BN>(kernel[s][k], tx, 0, b);
            multiply_add(a, b, total);
        }
        if (k0 + BK < K) { store(s ^ 1); }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; i += POOLED) {
        int m = first + place_in_tile<TM, BM>(ty, i);
        if (m >= count) { continue; }
#pragma unroll
        for (int q = 0; q < TN; q += 4) {
            int f = filter + place_in_tile<TN, BN>(tx, q);
            Four values = {};
            unsigned char winner[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                T value = total[i][q + j];
                int largest = 0;
#pragma unroll
                for (int p = 1; p < POOLED; ++p) {
                    T other = total[i + p][q + j];
                    if (other > value || other != other) { value = other, largest = p; }
                }
                if (bias != nullptr && f + j < F) { value += bias[group * F + f + j]; }
                bool is_shut = RELU && value <= 0;
                values.at[j] = is_shut ? T(0) : value;
                winner[j] = is_shut ? NONE : largest;
            }
            ptrdiff_t out = ((ptrdiff_t)(m / POOLED) * GROUPS + group) * F + f;
#if F % 4 == 0
            if (f < F) { *(Four *)(y + out) = values; }
#else
            for (int j = 0; j < 4 && f + j < F; ++j) { y[out + j] = values.at[j]; }
#endif
#if RELU || POOL > 1
            for (int j = 0; j < 4 && f + j < F; ++j) { winners[out + j] = winner[j]; }
#endif
        }
    }
}

// parts (blocks, GROUPS, K + 1, F): the transposed windows times the gradient g of the outputs, of ``each``
// outputs a block; the last row is the sum of g alone, the gradient of the bias. A grid of (K / BM, F / BN,
// blocks GROUPS) blocks.
extern "C" __global__ void __launch_bounds__(THREADS) correlate_with_gradient(
    const T *__restrict__ x, const T *__restrict__ g, const unsigned char *__restrict__ winners,
    T *__restrict__ parts, int count, int each) {
    alignas(16) __shared__ T windows[2][BK][BM], gradient[2][BK][BN];
    constexpr int QUADS_OF_K = BM / 4, FITTING = THREADS / QUADS_OF_K;
    constexpr int PIXELS_AT_ONCE = FITTING < BK ? FITTING : BK, PASSES = BK / PIXELS_AT_ONCE;
    constexpr int QUADS_OF_F = BN / 4, FITTING_ROWS = THREADS / QUADS_OF_F;
    constexpr int ROWS_AT_ONCE = FITTING_ROWS < BK ? FITTING_ROWS : BK, GRADIENT_PASSES = BK / ROWS_AT_ONCE;
    int t = threadIdx.x, tx = t % (BN / TN), ty = t / (BN / TN), group = blockIdx.z % GROUPS;
    int of_window = blockIdx.x * BM, filter = blockIdx.y * BN;
    int begin = blockIdx.z / GROUPS * each, end = begin + each < count ? begin + each : count;
    int quad = t % QUADS_OF_K, row = t / QUADS_OF_K, k = of_window + 4 * quad;
    int gradient_quad = t % QUADS_OF_F, gradient_row = t / QUADS_OF_F, f = filter + 4 * gradient_quad;
    Four next[PASSES], next_gradient[GRADIENT_PASSES];
    T total[TM][TN] = {};

    auto load = [&](int m0) {
#pragma unroll
        for (int i = 0; i < PASSES; ++i) {
            int m = m0 + row + i * PIXELS_AT_ONCE;
            next[i] = four_of_window(x, nullptr, window_of(m, end), group, k);
            if (k <= K && K < k + 4 && m < end) { next[i].at[K % 4] = 1; }
        }
#pragma unroll
        for (int i = 0; i < GRADIENT_PASSES; ++i) {
            int m = m0 + gradient_row + i * ROWS_AT_ONCE;
            next_gradient[i] = Four{};
            if (m >= end || gradient_row >= ROWS_AT_ONCE || f >= F) { continue; }
            ptrdiff_t output = ((ptrdiff_t)(m / POOLED) * GROUPS + group) * F;
            next_gradient[i] = four_of_row(g + output, f);
#if (RELU || POOL > 1) && F % 4 == 0
            next_gradient[i] = share_of(next_gradient[i], winners + output + f, m % POOLED);
#elif RELU || POOL > 1
            for (int j = 0; j < 4 && f + j < F; ++j) {
                if (winners[output + f + j] != m % POOLED) { next_gradient[i].at[j] = 0; }
            }
#endif
        }
    };
    auto store = [&](int s) {
        if (row < PIXELS_AT_ONCE) {
#pragma unroll
            for (int i = 0; i < PASSES; ++i) {
                *(Four *)&windows[s][row + i * PIXELS_AT_ONCE][4 * quad] = next[i];
            }
        }
        if (gradient_row < ROWS_AT_ONCE) {
#pragma unroll
            for (int i = 0; i < GRADIENT_PASSES; ++i) {
                *(Four *)&gradient[s][gradient_row + i * ROWS_AT_ONCE][4 * gradient_quad] = next_gradient[i];
            }
        }
    };

    load(begin);
    store(0);
    __syncthreads();
    for (int m0 = begin, s = 0; m0 < end; m0 += BK, s ^= 1) {
        if (m0 + BK < end) { load(m0 + BK); }
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            alignas(16) T a[TM], b[TN];
            read<TM, BM>(windows[s][i], ty, 0, a);
            read<TN, BN>(gradient[s][i], tx, 0, b);
            multiply_add(a, b, total);
        }
        if (m0 + BK < end) { store(s ^ 1); }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
        int column = of_window + place_in_tile<TM, BM>(ty, i);
        if (column > K) { continue; }
        T *out = parts + ((ptrdiff_t)blockIdx.z * (K + 1) + column) * F;
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            int own = filter + place_in_tile<TN, BN>(tx, j);
            if (own < F) { out[own] = total[i][j]; }
        }
    }
}

// dw (GROUPS F, C, KH, KW) and dbias (GROUPS F): the sums of the parts, in their order, by a thread for each.
extern "C" __global__ void sum_parts(
    const T *__restrict__ parts, T *__restrict__ dw, T *__restrict__ dbias, int blocks) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, numbers = GROUPS * (K + 1) * F;
    if (i >= numbers) { return; }
    T total = 0;
#pragma unroll 8
    for (int block = 0; block < blocks; ++block) { total += parts[(ptrdiff_t)block * numbers + i]; }
    int f = i / ((K + 1) * F) * F + i % F, k = i / F % (K + 1);
    if (k == K) {
        dbias[f] = total;
    } else {
        dw[((ptrdiff_t)f * C + k % C) * (KH * KW) + k / C] = total;
    }
}

// w (GROUPS F, C, KH, KW) as the kernel of forward, (GROUPS, taps, C, F), and as that of the image gradient,
// whose windows are turned round: (GROUPS, taps, F, C).
extern "C" __global__ void arrange(const T *__restrict__ w, T *__restrict__ kernel, T *__restrict__ turned) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= GROUPS * K * F) { return; }
    int f = i % F, c = i / F % C, tap = i / F / C % (KH * KW), group = i / F / K;
    T value = w[(((ptrdiff_t)group * F + f) * C + c) * (KH * KW) + tap];
    kernel[i] = value;
    turned[(((ptrdiff_t)group * KH * KW + KH * KW - 1 - tap) * F + f) * C + c] = value;
}
