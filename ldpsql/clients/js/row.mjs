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
