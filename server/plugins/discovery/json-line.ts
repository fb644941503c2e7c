/** The line at which a text stops being JSON. JSON.parse names a position only for some faults, and not in each Node. */

type Kind = "start" | "{" | "[" | "}" | "]" | "," | ":" | "string" | "scalar" | "key" | "value";

const TOKEN =
  /\s*(?:([{}[\],:])|("(?:[^"\\\p{Cc}]|\\(?:["\\/bfnrt]|u[0-9a-f]{4}))*")|(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:e[+-]?\d+)?|true|false|null)(?![\w.+-]))/iuy;

export function brokenLine(text: string): number {
  const inside: string[] = [];
  let before: Kind = "start";
  let at = 0;
  for (;;) {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) break;
    const next = (found[1] ?? (found[2] === undefined ? "scalar" : "string")) as Kind;
    if (!mayFollow(before, next, inside.at(-1))) break;
    at = TOKEN.lastIndex;
    const isKey: boolean = next === "string" && inside.at(-1) === "{" && before !== ":";
    if (next === "{" || next === "[") inside.push(next);
    if (next === "}" || next === "]") inside.pop();
    before = isKey ? "key" : "{[,:".includes(next) ? next : "value";
  }
  const blanks = /^\s*/.exec(text.slice(at))?.[0].length ?? 0;
  return text.slice(0, at + blanks).split("\n").length;
}

function mayFollow(before: Kind, next: Kind, inside: string | undefined): boolean {
  const isValue = next === "{" || next === "[" || next === "string" || next === "scalar";
  switch (before) {
    case "start":
    case ":":
      return isValue;
    case "[":
      return isValue || next === "]";
    case "{":
      return next === "string" || next === "}";
    case ",":
      return inside === "{" ? next === "string" : isValue;
    case "key":
      return next === ":";
    default:
      return inside !== undefined && (next === "," || next === (inside === "{" ? "}" : "]"));
  }
}
