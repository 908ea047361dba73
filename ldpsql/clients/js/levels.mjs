// The lower half of a word decides the level, then the block of the value responds.
structures.levels = ({ shape, blocks, responses }) => {
  const draws = responses.map((response) => structures[response.structure](response));
  const outputs = ({ size, response, dimension }) =>
    response ? ((response.size ** dimension - 1) / (response.size - 1)) * response.size : size;
  const starts = responses.reduce((sums, response) => [...sums, sums.at(-1) + outputs(response)], [0]);
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
    const level = Number((BigInt.asUintN(32, words()) * BigInt(blocks.length)) >> 32n);
    return starts[level] + draws[level](node(value, blocks[level]), words);
  };
};
