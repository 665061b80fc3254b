// The mean of -log softmax(x)[label] over the rows of x (rows, classes) in C order, by one block with a thread
// for each row: a power of two, MOST_ROWS at most. ``largest`` and ``total`` are a row's largest number and
// the sum of its exponentials less that. Macros: T is float or double, LABEL an integer.
extern "C" __global__ void cross_entropy(
    const T *__restrict__ x, const LABEL *__restrict__ labels, T *largest, T *total, T *loss, int rows,
    int classes) {
    __shared__ double losses[MOST_ROWS];
    int row = threadIdx.x;
    losses[row] = 0;
    if (row < rows) {
        const T *of_row = x + (ptrdiff_t)row * classes;
        T most = of_row[0], sum = 0;
        for (int c = 1; c < classes; ++c) {
            if (of_row[c] > most || of_row[c] != of_row[c]) { most = of_row[c]; }
        }
        for (int c = 0; c < classes; ++c) { sum += exp(of_row[c] - most); }
        LABEL label = labels[row];
        bool is_class = label >= 0 && label < classes;
        losses[row] = is_class ? log(sum) - (of_row[label] - most) : (T)nan("");
        largest[row] = most, total[row] = sum;
    }
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (row < half) { losses[row] += losses[row + half]; }
    }
    if (row == 0) { *loss = losses[0] / rows; }
}
