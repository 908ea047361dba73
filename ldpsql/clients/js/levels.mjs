// The lower half of a word decides the level, the upper one the seed, rarely with further bits; then the block responds.
structures.levels = ({ shape, blocks, responses }) => {
  const levels = responses.map((response) =>
    response.structure === "orthogonal_hash" ? orthogonal(response)
    : { seeds: 1, step: (1n << 64n) - 1n, hash: (_, at) => at, respond: structures.keep_or_spread(response), symbols: response.size });
  const starts = levels.reduce((sums, { seeds, symbols }) => [...sums, sums.at(-1) + seeds * symbols], [0]);
  const seedOf = ({ seeds, step }, half, words) => {
    const count = BigInt(seeds), scaled = half * count;
    if ((scaled + 2n * count + 2n) >> 32n === scaled >> 32n) return Number(scaled >> 32n);
    return Math.min(Number(((half << 32n) | (words() >> 32n)) / step), seeds - 1);
  };
  const node = (value, block) => {
    let at = 0, scale = 1;
    for (let i = shape.length - 1; i >= 0; i--) {
      at += Math.floor((value % shape[i]) / block[i]) * scale;
      scale *= Math.ceil(shape[i] / block[i]);
      value = Math.floor(value / shape[i]);
    }
    return at;
  };
  return (value, words) => {
    const word = words(), at = Number((BigInt.asUintN(32, word) * BigInt(blocks.length)) >> 32n), level = levels[at];
    const seed = seedOf(level, word >> 32n, words);
    return starts[at] + seed * level.symbols + level.respond(level.hash(seed, node(value, blocks[at])), words);
  };
};
