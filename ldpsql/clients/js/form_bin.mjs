forms.bin = (reports) => pair(reports, "bin", (cell) => cell);
