forms.listed_hash = ({ symbols }) => (at) => ({ seed: Math.floor(at / symbols), y: at % symbols });
