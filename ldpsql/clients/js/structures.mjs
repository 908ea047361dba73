//: splitmix
const low64 = (word) => BigInt.asUintN(64, word);
function splitmix(word) {
  let z = low64(word + 0x9e3779b97f4a7c15n);
  z = low64((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = low64((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}
const hashed = (seed, value, symbols) =>
  Number(((splitmix(splitmix(seed) ^ BigInt(value)) >> 32n) * BigInt(symbols)) >> 32n);

//: alias
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

//: coins
// Words whose bits are set with a weight out of 2^64: its digits, from the last nonzero one on, OR or AND random words.
const coins = (weight) => {
  const digits = [];
  for (let place = 0n; place < 64n; place++) {
    const digit = (weight >> place) & 1n;
    if (digit || digits.length) digits.push(digit);
  }
  return (width, words) => {
    const bits = Array(width).fill(0n);
    for (const digit of digits)
      for (let i = 0; i < width; i++) bits[i] = digit ? bits[i] | words() : bits[i] & words();
    return bits;
  };
};
const cut = (bits, size) => (size % 64 ? (bits[bits.length - 1] &= (1n << BigInt(size % 64)) - 1n) : 0);

//: keep_or_spread
// A word has size - 1 parts of width spread, which move the value on, then the part that keeps it.
structures.keep_or_spread = ({ size, spread }) => {
  const width = BigInt(spread);
  return (value, words) => {
    const moved = value + Math.min(Number(words() / width), size - 1) + 1;
    return moved < size ? moved : moved - size;
  };
};

//: independent_bits
// All bits as those of other values, then the bit of the value.
structures.independent_bits = ({ size, own, other }) => {
  const width = Math.ceil(size / 64), kept = BigInt(own), drawn = coins(BigInt(other));
  return (value, words) => {
    const bits = drawn(width, words), at = value >> 6, bit = 1n << BigInt(value & 63);
    cut(bits, size);
    bits[at] = words() < kept ? bits[at] | bit : bits[at] & ~bit;
    return bits;
  };
};

//: subsets
// Whether the value is in the set, then the others with the smallest of random keys; ties are drawn again.
structures.subsets = ({ size, chosen, inside }) => {
  const weight = BigInt(inside);
  const others = (count, words) => {
    for (;;) {
      const keys = BigUint64Array.from({ length: size - 1 }, words);
      const last = keys.slice().sort()[Math.max(count - 1, 0)];
      const held = Array.from(keys, (key) => count > 0 && key <= last);
      if (held.filter(Boolean).length === count) return held;
    }
  };
  return (value, words) => {
    const held = words() < weight, bits = Array(Math.ceil(size / 64)).fill(0n);
    const set = (at) => (bits[at >> 6] |= 1n << BigInt(at & 63));
    others(chosen - Number(held), words).forEach((one, at) => one && set(at + (at >= value)));
    if (held) set(value);
    return bits;
  };
};

//: hadamard
// A mask, flipped at the lowest bit of the value's number unless the value passes it as it should.
structures.hadamard = ({ size, inside }) => {
  const bits = 32 - Math.clz32(size), weight = BigInt(inside);
  const passes = (mask, number) => {
    let odd = mask & number;
    for (const by of [16, 8, 4, 2, 1]) odd ^= odd >>> by;
    return (odd & 1) === 0;
  };
  return (value, words) => {
    let mask = Number(words() >> BigInt(64 - bits));
    const number = value + 1;
    if (passes(mask, number) !== words() < weight) mask ^= number & -number;
    const set = Array(Math.ceil(size / 64)).fill(0n);
    for (let at = 0; at < size; at++) if (passes(mask, at + 1)) set[at >> 6] |= 1n << BigInt(at & 63);
    return set;
  };
};

//: private_hash
structures.private_hash = ({ response }) => {
  const respond = structures.keep_or_spread(response);
  return (value, words) => {
    const seed = words();
    return [seed, respond(hashed(seed, value, response.size), words)];
  };
};

//: repeated_hash
structures.repeated_hash = ({ response, again }) => {
  const first = structures.keep_or_spread(response), second = structures.keep_or_spread(again);
  return (value, words) => {
    const seed = words();
    return [seed, second(first(hashed(seed, value, response.size), words), words)];
  };
};

//: orthogonal_hash
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

//: dense_channel
structures.dense_channel = (table) => {
  const made = [];
  return (value, words) => (made[value] ??= alias(row(table, value)))(words());
};

//: moving_weights
// Two reports whose weights change evenly, then a window that moves evenly: each has `low`, and more where it is covered.
structures.moving_weights = ({ values, ...numbers }) => {
  const [share, first, bins, low, inside, step, start] =
    ["share", "first", "bins", "low", "inside", "step", "start"].map((name) => BigInt(numbers[name]));
  const last = BigInt(values - 1), way = bins * step - inside - 2n * start;
  const weights = (value) => {
    const left = first - ((2n * first - share) * value) / last, out = share ? [left, share - left] : [];
    const begin = start + (way * value) / last, end = begin + inside;
    for (let from = 0n; from < bins * step; from += step) {
      const covered = (end < from + step ? end : from + step) - (begin > from ? begin : from);
      out.push(low + (covered > 0n ? covered : 0n));
    }
    return out;
  };
  const made = [];
  return (value, words) => (made[value] ??= alias(weights(BigInt(value))))(words());
};

//: convolution
structures.convolution = ({ inputs, margin, noise }) => {
  const drawn = alias(noise.order === undefined ? row(noise, 0) : mirrored(noise)), last = inputs + 2 * margin - 1;
  return (value, words) => Math.min(Math.max(drawn(words()) + value - (inputs - 1), 0), last);
};

// Each weight is foretold by those before it, whose ratios hardly change; what it differs by is added.
function mirrored({ order, differences, last }) {
  const half = [];
  differences.split(" ").forEach((difference, at) => {
    let over = BigInt(at && order ? 1 : 0), under = 1n;
    [[], [1], [2, 1], [3, 3, 1]][Math.min(order, at)].forEach((times, i) => {
      const power = half[at - 1 - i] ** BigInt(times);
      if (i % 2) under *= power;
      else over *= power;
    });
    half.push(BigInt(difference) + over / under);
  });
  return [BigInt(last), ...half.slice(1, -1).reverse(), ...half];
}

//: planar_decay
// Weights by squared distance that fall exponentially, as ldpsql/channels/noise.py defines them: whole numbers only.
function falling(step, peak) {
  const powers = Array.from({ length: 5 }, (_, place) => {
    let base = 1n << 128n, term = base, power = base;
    for (let k = 1n; k < 40n; k++) base += term = floored(-(term >> BigInt(44 - 10 * place)), k);
    return Array.from({ length: 1024 }, () => {
      const now = power >> 64n;
      power = (power * base) >> 128n;
      return now >> 64n ? now - 1n : now;
    });
  });
  const weights = [], most = (1n << 50n) - 1n;
  for (let n = 0n; ; n++) {
    let root = BigInt(Math.floor(Math.sqrt(Number(n)) * 2 ** 40)); // corrected below
    while (root * root > n << 80n) root--;
    while ((root + 1n) * (root + 1n) <= n << 80n) root++;
    let exponent = (step * root) >> 40n, weight = peak;
    if (exponent > most) exponent = most;
    powers.forEach((power, place) => (weight = (weight * power[Number((exponent >> BigInt(10 * place)) & 1023n)]) >> 64n));
    if (weights.length && weight > weights.at(-1)) weight = weights.at(-1);
    if (weight === 0n && weights.length) return weights;
    weights.push(weight);
  }
}
const floored = (a, b) => (a < 0n ? (a - b + 1n) / b : a / b);

// The weights of the offsets of columns and rows, then of the cells whatever the value is; and where an entry moves a value.
function plane(numbers) {
  const [columns, rows, points] = ["columns", "rows", "points"].map((name) => Number(numbers[name]));
  const weights = falling(BigInt(numbers.step), BigInt(numbers.peak)), half = (points - 1) / 2;
  let last = 0;
  while (((last + 1) * points - half) ** 2 < weights.length) last++;
  const across = Math.min(columns - 1, last), down = Math.min(rows - 1, last), width = 2 * across + 1;
  const quarter = Array.from({ length: down + 1 }, () => Array(across + 1).fill(0n));
  for (let i = 0; i <= last; i++)
    for (let j = 0; j <= last; j++) {
      let sum = 0n;
      for (let x = i * points - half; x <= i * points + half; x++)
        for (let y = j * points - half; y <= j * points + half; y++) sum += weights[x * x + y * y] ?? 0n;
      quarter[Math.min(j, down)][Math.min(i, across)] += sum;
    }
  const entries = [], offsets = width * (2 * down + 1), cells = columns * rows;
  for (let at = 0; at < offsets; at++)
    entries.push(quarter[Math.abs(Math.floor(at / width) - down)][Math.abs((at % width) - across)]);
  const ends = (at, size) => (at === 0 || at === size - 1 ? 1 + last : 1), each = BigInt(numbers.spread) * BigInt(points ** 2);
  for (let at = 0; at < cells; at++)
    entries.push(each * BigInt(ends(at % columns, columns) * ends(Math.floor(at / columns), rows)));
  const left = (1n << 64n) - entries.reduce((sum, weight) => sum + weight, 0n), count = BigInt(cells);
  for (let at = 0; at < cells; at++) entries[offsets + at] += left / count + (BigInt(at) < left % count ? 1n : 0n);
  const clip = (at, size) => Math.min(Math.max(at, 0), size - 1);
  const moved = (value, entry) =>
    entry >= offsets ? entry - offsets
    : clip(Math.floor(value / columns) + Math.floor(entry / width) - down, rows) * columns
      + clip((value % columns) + (entry % width) - across, columns);
  return { entries, moved, cells };
}

//: planar_noise
structures.planar_noise = (numbers) => {
  const { entries, moved } = plane(numbers), drawn = alias(entries);
  return (value, words) => moved(value, drawn(words()));
};

//: planar_table
structures.planar_table = (numbers) => {
  const { entries, moved, cells } = plane(numbers), made = [];
  const table = (value) => {
    const weights = Array(cells).fill(0n);
    entries.forEach((weight, entry) => (weights[moved(value, entry)] += weight));
    return alias(weights);
  };
  return (value, words) => (made[value] ??= table(value))(words());
};

//: levels
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

//: signed_bits
// Two bits for each key: + below -. All keys as those of other symbols, then the key of the symbol.
structures.signed_bits = ({ keys, same, opposite, spread }) => {
  const width = Math.ceil(keys / 32), own = BigInt(same), either = own + BigInt(opposite), drawn = coins(2n * BigInt(spread));
  return (symbol, words) => {
    const signed = drawn(width, words).map((word) => word & 0x5555555555555555n);
    const bits = signed.map((word) => {
      const plus = word & words();
      return plus | ((word ^ plus) << 1n);
    });
    cut(bits, 2 * keys);
    const word = words(), at = symbol >> 6, bit = 1n << BigInt(symbol & 63), other = 1n << BigInt((symbol & 63) ^ 1);
    bits[at] = (bits[at] & ~(bit | other)) | (word < own ? bit : word < either ? other : 0n);
    return bits;
  };
};

//: bin_bits
// Each key shows the bins near a number, or nothing; a number near the symbol's bin may replace that of its key.
structures.bin_bits = ({ keys, bins, width, spread, near }) => {
  const places = bins + width - 1, each = BigInt(spread), own = BigInt(near);
  return (symbol, words) => {
    const shown = Array.from({ length: keys }, () => Math.min(Number(words() / each), places)), moved = Number(words() / own);
    if (moved < width) shown[Math.floor(symbol / bins)] = (symbol % bins) + moved;
    const set = Array(Math.ceil((keys * bins) / 64)).fill(0n);
    shown.forEach((number, key) => {
      for (let bin = Math.max(0, number - width + 1); number < places && bin <= Math.min(number, bins - 1); bin++) {
        const at = key * bins + bin;
        set[at >> 6] |= 1n << BigInt(at & 63);
      }
    });
    return set;
  };
};

//: keep_or_window
// Any symbol, or the key of the symbol and a bin near its own.
structures.keep_or_window = ({ keys, anything, window }) => {
  const near = structures[window.structure](window), bins = Number(window.values ?? window.rows.length), weight = BigInt(anything);
  return (symbol, words) => {
    const drawn = Number(words() / weight), first = Math.floor(symbol / bins) * bins, bin = near(symbol - first, words);
    return drawn < keys * bins ? drawn : first + bin;
  };
};

//: key_value
// One member of the set, padded with dummies; its symbol, or any symbol of a dummy; then the response to the symbol.
structures.key_value = ({ keys, padding, steps, response }) => {
  const bins = response.bins ?? (response.window ? Number(response.window.values ?? response.window.rows.length) : 0);
  const cells = bins || 2, respond = structures[response.structure](response), dummies = BigInt(padding * cells);
  // + has the weight 2^64 at / steps, where at is the nearest step, the even one of two.
  const signed = (place, word) => {
    let at = Math.round(place * steps);
    if (at - place * steps === 0.5 && at % 2) at--;
    return word < BigInt(at) * ((1n << 64n) / BigInt(steps)) + (BigInt(at) * ((1n << 64n) % BigInt(steps))) / BigInt(steps) ? 0 : 1;
  };
  return (set, words) => {
    const member = Number(words() % BigInt(Math.max(set.length, padding))), second = words();
    if (member >= set.length) return respond(keys * cells + Number(second % dummies), words);
    const [key, place] = set[member];
    return respond(key * cells + (bins ? Math.trunc(Math.min(place * bins, bins - 1)) : signed(place, second)), words);
  };
};

//: row
structures.row = async ({ values, channel, reports }) => {
  const parts = await Promise.all(
    values.names.map((_, i) => build({ values: values.parts[i], channel: channel.parts[i], reports: reports.parts[i] })));
  const places = values.parts.map(positions);
  return (held, words) => {
    places.forEach((place, i) => place(held[values.names[i]])); // refused before anything is drawn
    const only = reports.single ? Number(words() % BigInt(parts.length)) : -1;
    return Object.fromEntries(
      values.names.map((name, i) => [name, only < 0 || only === i ? parts[i](held[name], words) : null]));
  };
};
