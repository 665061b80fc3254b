// A schedule as a file, and the commands that write it and run it, as they are pasted into bash or zsh.

/** The schedule file, a line for each rank; description is {micro, chunks, route, ranks}. */
export function fileText({ ranks, ...rest }) {
  const head = Object.entries(rest).map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}, `).join("");
  return `{${head}"ranks": [\n${ranks.map((row) => `  ${JSON.stringify(row)}`).join(",\n")}\n]}\n`;
}

const writeFile = (description) => `cat > mine.json <<'END'\n${fileText(description)}END\n`;

const runOptions = ({ ranks }) => `--pipe ${ranks.length} --schedule-file mine.json`;

export const proveCommand = (description) =>
  `${writeFile(description)}minigrad prove ${runOptions(description)}\n`;

export const recordCommand = (description) =>
  `${writeFile(description)}minigrad train --epochs 1 ${runOptions(description)} --trace run.json\nminigrad trace run.json\n`;
