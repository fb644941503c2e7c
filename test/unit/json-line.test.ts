// Goal: a seller is sent to the line at which its document stops being JSON.
import t from "tap";
import { brokenLine } from "../../server/plugins/discovery/json-line.ts";

t.test("the line of the first fault", async (t) => {
  const cases: [string, number][] = [
    ['{\n  "version": 1,\n  "resources": [,]\n}', 3],
    ['{\n  "a": 1\n  "b": 2\n}', 3],
    ['{\n  "a": [\n    "x",\n  ]\n}', 4],
    ["{\n  a: 1\n}", 2],
    ['{\n  "a": "never ends\n}', 2],
    ['{\n  "a": 01\n}', 2],
    ['{\n  "a": {"b": [1, 2, {"c": null}]}\n', 3],
    ["", 1],
    ['{"a": 1}\n}', 2],
  ];
  for (const [text, line] of cases) {
    t.throws(() => JSON.parse(text) as unknown);
    t.equal(brokenLine(text), line, text);
  }
});
