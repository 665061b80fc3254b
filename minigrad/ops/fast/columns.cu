// Sums over the rows of matrices (rows, columns) in C order, and functions of each element.
//
// Macros: T is float or double. Sums are double. A block is WIDTH neighbouring columns with LANES threads for
// each, which take every LANES-th row; a grid is (columns / WIDTH, parts), and a part has ``each`` rows. Where
// there are several parts, their sums are added by a second kernel, in the order of the rows.

struct Two {
    double first, second;
};

struct Rows {  // those of a thread: begin, begin + LANES, ... below end; none where its column is none
    int column, begin, end, count;
};

__device__ inline Rows rows_of_thread(int rows, int columns, int each) {
    int column = blockIdx.x * WIDTH + threadIdx.x % WIDTH, begin = blockIdx.y * each;
    int end = begin + each < rows ? begin + each : rows;
    return {column, begin + (int)threadIdx.x / WIDTH, column < columns ? end : 0, end - begin};
}

// The sums over all threads of a column, which all get them.
__device__ inline Two together(Two own) {
    __shared__ double first[LANES][WIDTH], second[LANES][WIDTH];
    int column = threadIdx.x % WIDTH, lane = threadIdx.x / WIDTH;
    Two all = {};
    first[lane][column] = own.first, second[lane][column] = own.second;
    __syncthreads();
    for (int i = 0; i < LANES; ++i) { all.first += first[i][column], all.second += second[i][column]; }
    __syncthreads();  // before the next sums are written there
    return all;
}

// The sums of ``terms(row)`` over a column's rows.
template <class Terms> __device__ inline Two sums(Rows rows, Terms terms) {
    Two own = {};
    for (int row = rows.begin; row < rows.end; row += LANES) {
        Two of_row = terms(row);
        own.first += of_row.first, own.second += of_row.second;
    }
    return together(own);
}

// One thread of a column keeps its sums, in ``parts`` (parts, 2, columns) if there are several.
__device__ inline void keep(Two sums, int columns, double *parts, T *first, T *second) {
    int column = blockIdx.x * WIDTH + threadIdx.x;
    if (threadIdx.x >= WIDTH || column >= columns) { return; }
    if (gridDim.y > 1) {
        parts[(ptrdiff_t)blockIdx.y * 2 * columns + column] = sums.first;
        parts[((ptrdiff_t)blockIdx.y * 2 + 1) * columns + column] = sums.second;
    } else {
        first[column] = sums.first, second[column] = sums.second;
    }
}

__device__ inline Two of_part(const double *parts, int part, int column, int columns) {
    ptrdiff_t i = (ptrdiff_t)part * 2 * columns + column;
    return {parts[i], parts[i + columns]};
}

// The gradient before a ReLU with the value y, which has none where y is 0; without a ReLU y is absent.
__device__ inline T before_relu(const T *__restrict__ g, const T *__restrict__ y, ptrdiff_t i) {
    return y == nullptr || y[i] != 0 ? g[i] : T(0);
}

extern "C" __global__ void add_parts(
    const double *__restrict__ parts, T *first, T *second, int count, int rows, int columns, int each) {
    Rows of_thread = rows_of_thread(count, columns, count);
    Two total = sums(of_thread, [&](int part) { return of_part(parts, part, of_thread.column, columns); });
    keep(total, columns, nullptr, first, second);
}

// total (columns): the sums of the gradients g before a ReLU, which are written into d; along (columns): the
// sums of their products with (x - mean) scale. mean and scale have a number for each column, or for each
// row if ``by_row``. y, d, and x with mean and scale may be absent.
extern "C" __global__ void gradient_sums(
    const T *__restrict__ g, const T *__restrict__ y, const T *__restrict__ x, const T *__restrict__ mean,
    const T *__restrict__ scale, T *d, double *parts, T *total, T *along, int rows, int columns, int each,
    int by_row) {
    Rows of_thread = rows_of_thread(rows, columns, each);
    Two all = sums(of_thread, [&](int row) {
        ptrdiff_t i = (ptrdiff_t)row * columns + of_thread.column;
        T own = before_relu(g, y, i);
        if (d != nullptr) { d[i] = own; }
        if (x == nullptr) { return Two{own, 0}; }
        int c = by_row ? row : of_thread.column;
        return Two{own, own * ((double)(x[i] - mean[c]) * scale[c])};
    });
    keep(all, columns, parts, total, along);
}

// The mean and the variance of each column of x. A part has the sum, and the sum of the squared deviations
// from its own mean.
extern "C" __global__ void moments(
    const T *__restrict__ x, double *parts, T *mean, T *variance, int rows, int columns, int each) {
    Rows of_thread = rows_of_thread(rows, columns, each);
    auto value = [&](int row) { return (double)x[(ptrdiff_t)row * columns + of_thread.column]; };
    double total = sums(of_thread, [&](int row) { return Two{value(row), 0}; }).first;
    double centre = total / of_thread.count;
    double squares = sums(of_thread, [&](int row) {
        double deviation = value(row) - centre;
        return Two{deviation * deviation, 0};
    }).first;
    Two all = gridDim.y > 1 ? Two{total, squares} : Two{centre, squares / rows};
    keep(all, columns, parts, mean, variance);
}

// Of the parts' moments: the squares within the parts, and those of the parts' means (Chan et al. 1983).
extern "C" __global__ void merge_moments(
    const double *__restrict__ parts, T *mean, T *variance, int count, int rows, int columns, int each) {
    Rows of_thread = rows_of_thread(count, columns, count);
    auto part = [&](int i) { return of_part(parts, i, of_thread.column, columns); };
    double centre = sums(of_thread, [&](int i) { return Two{part(i).first, 0}; }).first / rows;
    double squares = sums(of_thread, [&](int i) {
        double size = rows - i * each < each ? rows - i * each : each;
        double deviation = part(i).first / size - centre;
        return Two{part(i).second + size * deviation * deviation, 0};
    }).first;
    keep({centre, squares / rows}, columns, nullptr, mean, variance);
}

// y = (x - mean) scale weight + bias, with a ReLU, and scale = 1 / sqrt(variance + eps), for each column.
extern "C" __global__ void normalize(
    const T *__restrict__ x, const T *__restrict__ mean, const T *__restrict__ variance,
    const T *__restrict__ weight, const T *__restrict__ bias, T *y, T *scale, int rows, int columns, int each,
    double eps, int relu) {
    Rows of_thread = rows_of_thread(rows, columns, each);
    int c = of_thread.column;
    if (c >= columns) { return; }
    T own = 1 / sqrt(variance[c] + (T)eps), factor = own * weight[c], centre = mean[c], shift = bias[c];
    if (of_thread.begin == 0) { scale[c] = own; }
    for (int row = of_thread.begin; row < of_thread.end; row += LANES) {
        ptrdiff_t i = (ptrdiff_t)row * columns + c;
        T value = (x[i] - centre) * factor + shift;
        y[i] = relu && value <= 0 ? T(0) : value;
    }
}

// d: the gradient of ``normalize``. ``total`` and ``along`` are the gradients of bias and weight, by which x
// moves its own mean and variance; they are absent where these are constants.
extern "C" __global__ void normalize_gradient(
    const T *__restrict__ g, const T *__restrict__ y, const T *__restrict__ x, const T *__restrict__ mean,
    const T *__restrict__ scale, const T *__restrict__ weight, const T *__restrict__ total,
    const T *__restrict__ along, T *d, int rows, int columns, int each) {
    Rows of_thread = rows_of_thread(rows, columns, each);
    int c = of_thread.column;
    if (c >= columns) { return; }
    T factor = scale[c] * weight[c], centre = mean[c], slope = 0, shift = 0;
    if (total != nullptr) { slope = factor * scale[c] * along[c] / rows, shift = factor * total[c] / rows; }
    for (int row = of_thread.begin; row < of_thread.end; row += LANES) {
        ptrdiff_t i = (ptrdiff_t)row * columns + c;
        T own = before_relu(g, y, i) * factor;
        d[i] = total == nullptr ? own : own - (x[i] - centre) * slope - shift;
    }
}

// y += bias, with a ReLU. The bias may be absent.
extern "C" __global__ void add_bias(T *y, const T *__restrict__ bias, int rows, int columns, int each, int relu) {
    Rows of_thread = rows_of_thread(rows, columns, each);
    if (of_thread.column >= columns) { return; }
    T shift = bias == nullptr ? T(0) : bias[of_thread.column];
    for (int row = of_thread.begin; row < of_thread.end; row += LANES) {
        ptrdiff_t i = (ptrdiff_t)row * columns + of_thread.column;
        T value = y[i] + shift;
        y[i] = relu && value <= 0 ? T(0) : value;
    }
}
