// Layer norm: each row of matrices (rows, columns) in C order with mean 0 and variance 1.
//
// Macros: T is float or double. Sums are double. A block has THREADS threads, ``width`` for a row, which take
// every ``width``-th column; both are powers of two.

struct Two {
    double first, second;
};

struct Columns {  // those of a thread: begin, begin + width, ... below end; none where its row is none
    int row, begin, end, width;
};

__device__ inline Columns columns_of_thread(int rows, int columns, int width) {
    int row = blockIdx.x * (THREADS / width) + threadIdx.x / width;
    return {row, (int)threadIdx.x % width, row < rows ? columns : 0, width};
}

// The sums over the ``width`` threads of a row, which all get them; ``own`` has the number ``place`` of them.
__device__ inline Two together(Two own, int place, int width) {
    __shared__ double first[THREADS], second[THREADS];
    int t = threadIdx.x;
    first[t] = own.first, second[t] = own.second;
    for (int half = width / 2; half; half /= 2) {
        __syncthreads();
        if (place < half) { first[t] += first[t + half], second[t] += second[t + half]; }
    }
    __syncthreads();
    Two all = {first[t - place], second[t - place]};
    __syncthreads();  // before the next sums are written there
    return all;
}

// The sums of ``terms(column)`` over a row's columns.
template <class Terms> __device__ inline Two sums(Columns columns, Terms terms) {
    Two own = {};
    for (int column = columns.begin; column < columns.end; column += columns.width) {
        Two of_column = terms(column);
        own.first += of_column.first, own.second += of_column.second;
    }
    return together(own, columns.begin, columns.width);
}

// y = (x - mean) scale weight + bias, where scale = 1 / sqrt(variance + eps) is that of the row.
extern "C" __global__ void layer_norm(
    const T *__restrict__ x, const T *__restrict__ weight, const T *__restrict__ bias, T *y, T *mean, T *scale,
    int rows, int columns, int width, double eps) {
    Columns of_thread = columns_of_thread(rows, columns, width);
    ptrdiff_t start = (ptrdiff_t)of_thread.row * columns;
    double centre = sums(of_thread, [&](int c) { return Two{(double)x[start + c], 0}; }).first / columns;
    double variance = sums(of_thread, [&](int c) {
        double deviation = x[start + c] - centre;
        return Two{deviation * deviation, 0};
    }).first / columns;
    T own_mean = centre, own_scale = 1 / sqrt(variance + eps);
    if (of_thread.begin == 0 && of_thread.end) { mean[of_thread.row] = own_mean, scale[of_thread.row] = own_scale; }
    for (int c = of_thread.begin; c < of_thread.end; c += width) {
        y[start + c] = (x[start + c] - own_mean) * own_scale * weight[c] + bias[c];
    }
}

// d: the gradient of x. Of g weight its mean is subtracted, and its share along the normalized x.
extern "C" __global__ void layer_norm_gradient(
    const T *__restrict__ g, const T *__restrict__ x, const T *__restrict__ weight, const T *__restrict__ mean,
    const T *__restrict__ scale, T *d, int rows, int columns, int width, double eps) {
    Columns of_thread = columns_of_thread(rows, columns, width);
    ptrdiff_t start = (ptrdiff_t)of_thread.row * columns;
    T centre = of_thread.end ? mean[of_thread.row] : T(0), factor = of_thread.end ? scale[of_thread.row] : T(0);
    auto normal = [&](int c) { return (x[start + c] - centre) * factor; };
    Two means = sums(of_thread, [&](int c) {
        double own = (double)g[start + c] * weight[c];
        return Two{own, own * normal(c)};
    });
    T shift = means.first / columns, slope = means.second / columns;
    for (int c = of_thread.begin; c < of_thread.end; c += width) {
        d[start + c] = (g[start + c] * weight[c] - shift - normal(c) * slope) * factor;
    }
}
