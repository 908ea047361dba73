structures.planar_noise = (numbers) => {
  const { entries, moved } = plane(numbers), drawn = alias(entries);
  return (value, words) => moved(value, drawn(words()));
};
