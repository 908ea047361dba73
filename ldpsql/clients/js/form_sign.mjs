forms.sign = (reports) => pair(reports, "sign", (cell) => 1 - 2 * cell);
