"""Assignment a7 as a student would solve it by its README."""

from backends.pipeline import Backward, Forward, Weight


def gpipe(stage, stages, micros):
    for i in range(micros):
        yield Forward(i)
    for i in reversed(range(micros)):
        yield Backward(i)


def one_f_one_b(stage, stages, micros):
    ahead = min(stages - stage - 1, micros)
    for i in range(ahead):
        yield Forward(i)
    for i in range(micros):
        if ahead + i < micros:
            yield Forward(ahead + i)
        yield Backward(i)


def my_schedule(stage, stages, micros):
    wait = stage  # what 1F1B leaves free
    for i in one_f_one_b(stage, stages, micros):
        yield i
        if isinstance(i, Backward) and i.micro >= wait:
            yield Weight((i.micro - wait,))
    for micro in range(max(0, micros - wait), micros):
        yield Weight((micro,))


def zero_bubble(stage, stages, micros):
    ahead, wait = 2 * (stages - 1 - stage), 2 * stage
    instructions = [Forward(i) for i in range(ahead)]
    for i in range(micros):
        instructions += [Forward(ahead + i)] if ahead + i < micros else []
        instructions += [Backward(i)]
        instructions += [Weight((i - wait,))] if i >= wait else []
    return [*instructions, *(Weight((i,)) for i in range(micros - wait, micros))]
