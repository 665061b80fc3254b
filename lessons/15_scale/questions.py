"""Questions on lesson 15: predict, change, prove.

Write a letter into each prediction before you change anything. Then make the edit that the question asks for,
and run minigrad lesson 15 --check.
"""

# %% [markdown]
# ## 1. A small message on 32 ranks
# A message takes 20 us and its bytes at 100 MB/s. On 32 ranks an all-reduce of 262,144 float32 around a
# ring takes 5% longer than by halving and doubling: each rank sends as many bytes in both. Edit: an
# all-reduce of 32 numbers. How much longer does the ring take?
#
# - a: 6 times as long
# - b: 5% longer, as before: both times shrink with the bytes
# - c: it takes less time: its messages are the smaller ones

# %%
PREDICTION_1 = ""
NUMBERS = 262_144

# %% [markdown]
# ## 2. One slow stage
# A pipeline of four equal stages takes 32 micro-batches, and is 3.66 times as fast as one rank. Edit: one
# stage takes twice as long as each of the others, which stay as they are. How many times as fast as one
# rank, which must do all this work too, is the pipeline then?
#
# - a: 3.66 times: one rank is slower by as much
# - b: about 3.2 times: the slow stage fills a part of the bubble
# - c: about 2.4 times: three ranks wait half of the time

# %%
PREDICTION_2 = ""
STAGE_SECONDS = [1.0, 1.0, 1.0, 1.0]

# %% [markdown]
# ## 3. Four times as many machines
# Each machine fails once in 125 days on average, and then all machines go back to the last checkpoint. Saving
# a checkpoint takes 60 s. With 1,000 machines something fails every three hours, and the least time is lost
# with a checkpoint every 19 minutes, 1,138 s. Edit: 4,000 machines. How often should they save?
#
# - a: every 285 s: they fail four times as often
# - b: every 569 s
# - c: every 1,138 s: saving takes as long as before

# %%
PREDICTION_3 = ""
MACHINES = 1000

# %% [markdown]
# ## 4. The end of a step
# A step computes forward, then backward. Bucket j of the gradients is ready `ready[j]` seconds after
# backward began, in rising order, and its all-reduce takes `summing[j]` seconds. All-reduces run during
# backward, one after the other. The step is over when backward and all all-reduces have ended.
#
# Prediction: forward is free, backward takes 120 ms. Five buckets are ready at 24, 48, 72, 96 and 120 ms,
# and each takes 30 ms to sum. When is the step over?
#
# - a: at 150 ms: only the last bucket is left when backward ends
# - b: at 174 ms
# - c: at 270 ms: summing takes 150 ms, longer than backward, so it cannot be hidden
#
# Edit: write the function, in 5 lines or more. Now it returns the time of a step in which nothing is hidden.

# %%
PREDICTION_4 = ""


def step_seconds(forward, backward, ready, summing):
    """The seconds from the start of forward to the end of the step."""
    return forward + backward + sum(summing)


# %% [markdown]
# ## 5. A slow link
# Eight ranks of 100 TFLOP/s and 40 GB train a transformer with 12 blocks of width 2,048 on 32 rows of 2,048
# symbols. A link carries 50 GB/s, and the planner's best grid is data 8: each rank sends 5 GB in a step, its
# share of the sums of all gradients. Edit: a link of 1.25 GB/s. Which grid is the best now?
#
# - a: data 8, as before: whatever ranks share, they send more than gradients
# - b: pipe 8: its ranks are idle for most of the step
# - c: model 8: each rank has an eighth of the gradients, and sums none

# %%
PREDICTION_5 = ""
BANDWIDTH = 50e9

# %% [markdown]
# ## 6. Without recomputation
# GPUs with a peak of 312 TFLOP/s train a net of equal layers. In backward they compute each layer's forward
# again, and execute 163 TFLOP/s: an HFU of 52 % and an MFU of 39 %. Edit: no recomputation, as the memory is
# large enough now. They still execute 163 TFLOP/s. What are HFU and MFU?
#
# - a: HFU 39 %, since fewer operations are executed, and MFU 39 %: the model is the same
# - b: HFU 52 % and MFU 52 %
# - c: HFU 52 % and MFU 39 %: the GPUs are as fast as before

# %%
PREDICTION_6 = ""
RECOMPUTES = True

# %% [markdown]
# ## 7. Two layers ahead
# Four ranks train six equal layers with stage 3 of ZeRO. Gathering a layer takes 3 ms, as does its forward.
# With prefetch 1 a step takes 60 ms. Edit: prefetch 2. What changes?
#
# - a: a step takes less time: more of the gathering is hidden
# - b: a step takes more time: there is more to gather
# - c: no time is gained, and one more layer is in memory

# %%
PREDICTION_7 = ""
PREFETCH = 1

# %% [markdown]
# ## 8. The count is yours
# A transformer has `weights` that multiply activations, and `blocks` blocks of `width`. It trains on rows of
# `length` tokens, `tokens` tokens in all. Forward takes 2 operations for each weight and token. For each
# token, the core of attention takes 4 * `width` more operations in each block for each token of its row.
# Backward takes twice as many operations as forward.
#
# Prediction: 175 billion weights, 96 blocks of width 12,288, rows of 2,048 tokens. What share of a step's
# operations is 6 N D, N weights times D tokens times 6?
#
# - a: 97 %
# - b: 75 %: a quarter of the work is attention
# - c: 50 %: attention and feed-forward are equal halves of a block
#
# Edit: write the function.

# %%
PREDICTION_8 = ""


def needed_operations(weights, tokens, length, blocks, width):
    """The operations that a step needs, forward and backward, without recomputation."""
    return 6 * weights


if __name__ == "__main__":
    example = step_seconds(0, 120, [24, 48, 72, 96, 120], [30] * 5)
    print(f"the step of question 4 is over at {example} ms")
    needed = needed_operations(175e9, 2048, 2048, 96, 12_288)
    print(f"a row of question 8 needs {needed:.3g} operations, 6 N D is {6 * 175e9 * 2048:.3g}")
