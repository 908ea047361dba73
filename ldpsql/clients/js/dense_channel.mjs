structures.dense_channel = (table) => {
  const made = [];
  return (value, words) => (made[value] ??= alias(row(table, value)))(words());
};
