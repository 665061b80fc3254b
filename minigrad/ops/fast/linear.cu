// A linear layer of few outputs, whose products are so small that a launch of cuBLAS takes longer.
//
// Macros: T is float or double. Sums are double. x is (rows, n_in), w (n_out, n_in), y and g (rows, n_out), all
// in C order. A thread computes one number, 256 of them are a block.

// y = x w^T + bias, with a ReLU. The bias may be absent.
extern "C" __global__ void small_linear(
    const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ bias, T *y, int relu,
    int rows, int n_in, int n_out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / n_out, out = i % n_out;
    if (row >= rows) { return; }
    double total = bias == nullptr ? T(0) : bias[out];
#pragma unroll 8
    for (int k = 0; k < n_in; ++k) { total += (double)x[row * n_in + k] * w[out * n_in + k]; }
    y[i] = relu && total <= 0 ? T(0) : (T)total;
}

// All gradients of ``small_linear``: threads for each number of dx (rows, n_in), then of dw (n_out, n_in),
// then of dbias. y is the value of a ReLU, or absent.
extern "C" __global__ void small_linear_gradients(
    const T *__restrict__ g, const T *__restrict__ y, const T *__restrict__ x, const T *__restrict__ w, T *dx,
    T *dw, T *dbias, int rows, int n_in, int n_out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, of_x = rows * n_in, of_w = n_out * n_in;
    auto before_relu = [&](int j) { return y == nullptr || y[j] != 0 ? (double)g[j] : 0; };
    double total = 0;
    if (i < of_x) {
        int row = i / n_in, k = i % n_in;
#pragma unroll 4
        for (int out = 0; out < n_out; ++out) { total += before_relu(row * n_out + out) * w[out * n_in + k]; }
        dx[i] = total;
    } else if (i < of_x + of_w) {
        int out = (i - of_x) / n_in, k = (i - of_x) % n_in;
#pragma unroll 8
        for (int row = 0; row < rows; ++row) { total += before_relu(row * n_out + out) * x[row * n_in + k]; }
        dw[i - of_x] = total;
    } else if (i < of_x + of_w + n_out) {
        int out = i - of_x - of_w;
#pragma unroll 8
        for (int row = 0; row < rows; ++row) { total += before_relu(row * n_out + out); }
        dbias[out] = total;
    }
}
