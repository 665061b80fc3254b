"""The numbers as they were published; each table names its source."""

# Images a second on one P100, batches of 64: TensorFlow's benchmarks of May 2017, without ResNet-101. Its
# work is half-way between ResNet-50 (219) and ResNet-152 (91.8), so here its seconds are half-way, too.
P100 = {"Inception-V3": 142.0, "ResNet-101": 2 / (1 / 219 + 1 / 91.8), "VGG-16": 154.0}
V100 = {"VGG-16": 154 * 1.4, "ResNet-50": 219 * 1.4}  # our guess: 40% more than a P100 in float32

# Sergeev and Del Balso 2018 (Horovod): servers of 4 Pascal GPUs, 25 Gbit/s; efficiency by GPUs.
HOROVOD = {"Inception-V3": {512: 0.90}, "ResNet-101": {512: 0.90}, "VGG-16": {128: 0.79, 512: 0.68}}

# Goyal et al. 2017: servers of 8 P100, 50 Gbit/s; efficiency against one server.
GOYAL = {256: 0.90, 352: 1 / 1.12}

# Huang et al. 2018 (GPipe), table 2; Kim et al. 2020 (torchgpipe). Speed by micro-batches, for 2, 4 and 8
# stages, where 2 stages and 1 micro-batch are 1.
STAGES = (2, 4, 8)
PIPELINES = {
    "GPipe, Transformer-48": {1: (1, 1.07, 1.3), 4: (1.7, 3.2, 4.8), 32: (1.8, 3.4, 6.3)},
    "GPipe, AmoebaNet-D": {1: (1, 1.13, 1.38), 4: (1.07, 1.26, 1.72), 32: (1.21, 1.84, 3.48)},
    "torchgpipe, AmoebaNet-D": {1: (1, 1.006, 0.932), 4: (1.546, 1.680, 2.625), 32: (1.780, 2.711, 4.966)},
}

# Narayanan et al. 2021 (Megatron-LM), table 1: billion parameters, hidden size, layers, tensor x pipeline
# ranks, GPUs, batch, teraFLOP/s on each GPU, petaFLOP/s of all.
MEGATRON = (
    (1.7, 2304, 24, 1, 1, 32, 512, 137, 4.4),
    (3.6, 3072, 30, 2, 1, 64, 512, 138, 8.8),
    (7.5, 4096, 36, 4, 1, 128, 512, 142, 18.2),
    (18.4, 6144, 40, 8, 1, 256, 1024, 135, 34.6),
    (39.1, 8192, 48, 8, 2, 512, 1536, 138, 70.8),
    (76.1, 10240, 60, 8, 4, 1024, 1792, 140, 143.8),
    (145.6, 12288, 80, 8, 8, 1536, 2304, 148, 227.1),
    (310.1, 16384, 96, 8, 16, 1920, 2160, 155, 297.4),
    (529.6, 20480, 105, 8, 35, 2520, 2520, 163, 410.2),
    (1008.0, 25600, 128, 8, 64, 3072, 3072, 163, 502.0),
)

ZERO = (120, 31.4, 16.6, 1.9)  # GB a GPU, by stage: 7.5 billion parameters on 64. Rajbhandari et al. 2019

A100 = 312e12  # operations a second in 16 bits, NVIDIA's data sheet
# The README of Megatron-LM: layers, hidden size, model and hardware FLOPs utilization of models that compute
# only the core of attention again (Korthikanti et al. 2022, arXiv:2205.05198).
SELECTIVE = {"530 billion": (105, 20480, 0.560, 0.570), "1 trillion": (128, 25600, 0.563, 0.570)}
