const row = ({ distinct, rows }, at) => {
  const out = [];
  for (const number of rows[at])
    if (number < 0) for (let more = number; more < 0; more++) out.push(out.at(-1));
    else out.push(BigInt(distinct[number]));
  return out;
};

// Walker's table: the top bits of a word choose a column, the rest its own report or its alias.
function alias(weights) {
  const bits = Math.max(1, 32 - Math.clz32(weights.length - 1)), rest = 64 - bits, capacity = 1n << BigInt(rest);
  const threshold = Array.from({ length: 1 << bits }, (_, i) => weights[i] ?? 0n);
  const small = [], large = [], other = threshold.map((weight, i) => (weight < capacity ? small : large).push(i) && i);
  const spare = [], filled = [];
  let sum = 0n;
  for (const at of large) spare.push((sum += threshold[at] - capacity));
  sum = 0n;
  for (const at of small) filled.push((sum += capacity - threshold[at]));
  let giver = 0, first = 0;
  small.forEach((at, i) => {
    while (spare[giver] < (i ? filled[i - 1] : 0n)) giver++;
    other[at] = large[giver];
  });
  large.forEach((at, j) => {
    while (first < small.length && filled[first] <= spare[j]) first++;
    threshold[at] = first < small.length ? capacity - (filled[first] - spare[j]) : 0n;
    if (first < small.length) other[at] = large[j + 1];
  });
  return (word) => {
    const column = Number(word >> BigInt(rest));
    return BigInt.asUintN(rest, word) < threshold[column] ? column : other[column];
  };
}
