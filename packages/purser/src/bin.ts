import { main } from "./cli.ts";

process.exitCode = await main(process.argv.slice(2), process.env, (line) => console.log(line), {
  isTerminal: process.stdout.isTTY,
  write: (content) => void process.stdout.write(content),
  note: (line) => console.error(line),
});
