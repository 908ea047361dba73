const pair = ({ keys, bins }, field, numbered) => {
  const key = shown(keys.values), count = keys.values.count ?? keys.values.values.length, cells = bins ?? 2;
  return (at) =>
    at < count * cells ? { key: key(Math.floor(at / cells)), [field]: numbered(at % cells) } : { key: null, [field]: null };
};
