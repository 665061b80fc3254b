// The memory of each rank, from the coefficients that lessons/minigrad_course/explorables/byte_table.py emits.

/** The bytes of each stage's ranks, by what they are for; choice as in byte_table.Choice. */
export function bytesOf(choice, data) {
  const samples = Math.ceil(Math.ceil(choice.batch / choice.data) / choice.micro);
  const sharded = data.sharded[choice.zero];
  const perParameter = { weights: data.float, gradients: data.float, optimizer: data.optimizers[choice.optimizer] };
  const tapes = data.tapes[choice.schedule][`${choice.pipe},${choice.micro}`];
  return data.nets[choice.net][choice.pipe].stages.map((stage, rank) => {
    const row = Object.fromEntries(Object.entries(perParameter).map(([what, bytes]) =>
      [what, (stage.parameters * bytes) / (sharded.includes(what) ? choice.data : 1)]));
    const { most, recompute } = tapes[rank], pairs = choice.recompute ? recompute : [[most, most]];
    const held = pairs.map(([inputs, whole]) => inputs * stage.input + whole * stage.tape);
    return { ...row, activations: samples * Math.max(...held) };
  });
}
