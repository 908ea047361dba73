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
