structures.planar_table = (numbers) => {
  const { entries, moved, cells } = plane(numbers), made = [];
  const table = (value) => {
    const weights = Array(cells).fill(0n);
    entries.forEach((weight, entry) => (weights[moved(value, entry)] += weight));
    return alias(weights);
  };
  return (value, words) => (made[value] ??= table(value))(words());
};
