forms.node = ({ seeds, symbols }) => (at) => {
  let level = 0;
  for (; at >= seeds[level] * symbols[level]; level++) at -= seeds[level] * symbols[level];
  return { level, seed: Math.floor(at / symbols[level]), y: at % symbols[level] };
};
