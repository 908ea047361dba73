// The inner product of a function and the point of a value, over the field of size elements.
function orthogonal({ size, response, prime, dimension, power }) {
  const g = response.size, seeds = (g ** dimension - 1) / (g - 1), respond = structures.keep_or_spread(response);
  const full = 1n << 64n, even = full / BigInt(seeds), step = even < full ? even : full - 1n;
  const digits = (number) => Array.from({ length: dimension }, (_, i) => Math.floor(number / g ** (dimension - 1 - i)) % g);
  const { add, multiply } = field(g, prime, power);
  // Values are placed by the order of the hashes of all points; the hash is inverted instead of sorting pairs.
  const order = BigUint64Array.from({ length: g ** dimension }, (_, point) => splitmix(BigInt(point))).sort().slice(0, size);
  const hash = (seed, value) => {
    let k = 0, first = 0;
    for (; seed >= first + g ** k; k++) first += g ** k;
    const line = digits(seed - first + g ** k), point = digits(Number(unmixed(order[value])));
    return line.reduce((sum, a, i) => add(sum, multiply(a, point[i])), 0);
  };
  return { seeds, step, hash, respond, symbols: g };
}

structures.orthogonal_hash = (channel) => {
  const { seeds, step, hash, respond, symbols } = orthogonal(channel);
  return (value, words) => {
    const seed = Math.min(Number(words() / step), seeds - 1);
    return seed * symbols + respond(hash(seed, value), words);
  };
};

function unmixed(word) {
  const shifted = (z, by) => {
    let x = z;
    for (let s = by; s < 64n; s += by) x ^= z >> s;
    return x;
  };
  let z = low64(shifted(word, 31n) * 0x319642b2d24d8ec3n);
  z = low64(shifted(z, 27n) * 0x96de1b173f119089n);
  return low64(shifted(z, 30n) - 0x9e3779b97f4a7c15n);
}

function field(q, p, power) {
  if (q === p) return { add: (a, b) => (a + b) % p, multiply: (a, b) => (a * b) % p };
  const add = (a, b) => {
    let sum = 0;
    for (let place = 1; place < q; place *= p)
      sum += ((Math.floor(a / place) + Math.floor(b / place)) % p) * place;
    return sum;
  };
  const top = q / p, powers = [1], logs = [];
  for (let i = 0; i < q - 1; i++) {
    logs[powers[i]] = i;
    let next = (powers[i] % top) * p;
    for (let carry = Math.floor(powers[i] / top); carry > 0; carry--) next = add(next, power);
    powers.push(next);
  }
  return { add, multiply: (a, b) => (a && b ? powers[(logs[a] + logs[b]) % (q - 1)] : 0) };
}
