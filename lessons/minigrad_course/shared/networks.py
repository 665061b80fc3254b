"""The published networks as the formulas see them: weights, work and outputs of each layer."""

from collections import namedtuple

Layer = namedtuple("Layer", "name weights work outputs")  # work: multiply-adds a sample; outputs: a sample's


def vgg16():
    """Simonyan and Zisserman 2014: thirteen 3 x 3 convolutions, three linear layers; outputs are pooled."""
    layers, side, channels = [], 224, 3
    for block, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for i in range(1, depth + 1):
            outputs = width * side * side
            pooled = outputs // 4 if i == depth else outputs
            weights = width * (9 * channels + 1)
            layers.append(Layer(f"conv {block}.{i}", weights, 9 * channels * outputs, pooled))
            channels = width
        side //= 2
    return layers + [
        Layer(f"linear {i}", (a + 1) * b, a * b, b)
        for i, (a, b) in enumerate([(channels * side**2, 4096), (4096, 4096), (4096, 1000)], 1)
    ]


def resnet(*depths):
    """He et al. 2015, with so many bottleneck blocks in each of four groups, and batch-norm."""
    layers = [Layer("stem", 147 * 64 + 128, 147 * 64 * 112**2, 64 * 56**2)]
    channels = 64
    for group, depth in enumerate(depths):
        width, side = 64 << group, 56 >> group
        for i in range(depth):
            projection = 0 if i else channels * 4 * width
            kernels = channels * width + 9 * width**2 + 4 * width**2 + projection
            norms = 2 * (6 + (4 if i == 0 else 0)) * width
            outputs = 4 * width * side**2
            layers.append(Layer(f"block {group + 1}.{i + 1}", kernels + norms, kernels * side**2, outputs))
            channels = 4 * width
    return [*layers, Layer("linear", 2049 * 1000, 2048 * 1000, 1000)]


VGG16, RESNET50, RESNET101 = vgg16(), resnet(3, 4, 6, 3), resnet(3, 4, 23, 3)
INCEPTION = [Layer("all of it", 95_000_000 // 4, 1, 1000)]  # 95 MB, as if spread evenly over its layers
