// Goal: code that decides by a payment scheme's name, outside the schemes, does not pass the linter.
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import t from "tap";

type Node = Record<string, unknown>;
type Visitors = Record<string, ((node: Node) => void) | undefined>;
const ROOT = join(import.meta.dirname, "../..");
// Found at run time: the linter loads it as it is.
const { default: plugin } = (await import(
  pathToFileURL(join(ROOT, "test/lint/rooms.mjs")).href
)) as { default: { rules: { schemes: { create(context: object): Visitors } } } };
const text = (value: unknown): Node => ({ type: "Literal", value });
const member = (name: string): Node => ({ type: "MemberExpression", property: { name } });
const compared = (left: Node, right: Node, operator = "==="): Node => ({ left, right, operator });

/** How often the rule speaks up about one node of a file. */
function reports(file: string, kind: string, node: Node): number {
  let count = 0;
  const context = { filename: join(ROOT, file), report: () => (count += 1) };
  plugin.rules.schemes.create(context)[kind]?.(node);
  return count;
}

const ROUTE = "server/plugins/facilitator/settle.ts";

t.test("names of schemes", async (t) => {
  for (const name of ["exact", "upto", "permit2", "eip3009", "exact-permit2"])
    t.equal(reports(ROUTE, "Literal", text(name)), 1, name);
  for (const other of ["facilitated", "exactly", "https", 3, null])
    t.equal(reports(ROUTE, "Literal", text(other)), 0, String(other));
});

t.test("comparisons, whatever the name", async (t) => {
  const scheme = member("scheme");
  t.equal(reports(ROUTE, "BinaryExpression", compared(scheme, text("charge"))), 1);
  t.equal(reports(ROUTE, "BinaryExpression", compared(text("charge"), scheme, "!==")), 1);
  const chained = { type: "ChainExpression", expression: member("assetTransferMethod") };
  t.equal(reports(ROUTE, "BinaryExpression", compared(chained, text("charge"))), 1);
  t.equal(reports(ROUTE, "SwitchStatement", { discriminant: scheme }), 1);
  t.equal(reports(ROUTE, "BinaryExpression", compared(scheme, member("name"))), 0, "no name");
  t.equal(reports(ROUTE, "BinaryExpression", compared(member("kind"), text("spend"))), 0);
});

t.test("where they are known", async (t) => {
  for (const file of [
    "server/schemes/upto/index.ts",
    "server/core/authorization.ts",
    "packages/paywall/src/scheme.ts",
    "test/facilitator/upto.test.ts",
  ])
    t.equal(reports(file, "Literal", text("upto")), 0, file);
  for (const file of ["packages/paywall/src/charge.ts", "web/src/lib/api.ts"])
    t.equal(reports(file, "Literal", text("upto")), 1, file);
});
