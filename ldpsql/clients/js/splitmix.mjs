const low64 = (word) => BigInt.asUintN(64, word);
function splitmix(word) {
  let z = low64(word + 0x9e3779b97f4a7c15n);
  z = low64((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
  z = low64((z ^ (z >> 27n)) * 0x94d049bb133111ebn);
  return z ^ (z >> 31n);
}
const hashed = (seed, value, symbols) =>
  Number(((splitmix(splitmix(seed) ^ BigInt(value)) >> 32n) * BigInt(symbols)) >> 32n);
