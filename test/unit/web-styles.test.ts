// Goal: no component of the web app is shown without its styles: Mantine's style sheets are imported one by one.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";

const WEB = fileURLToPath(new URL("../../web/", import.meta.url));
const source = readdirSync(join(WEB, "src"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".tsx"))
  .map((name) => readFileSync(join(WEB, "src", name), "utf8"))
  .join("\n");
const sheets = readFileSync(join(WEB, "src/styles/mantine.css"), "utf8");
const hasSheet = (name: string): boolean =>
  existsSync(join(WEB, "node_modules/@mantine/core/styles", `${name}.css`));

t.test("every component that is used has its style sheet", async (t) => {
  const imports = [...source.matchAll(/import \{([^}]*)\} from "@mantine\/core"/g)];
  const names = imports.flatMap(([, list = ""]) => list.match(/\b[A-Z]\w+/g) ?? []);
  const used = [...new Set(names)].filter(hasSheet);
  t.ok(used.includes("Button") && used.length > 10, `${used.length} components`);
  t.same(
    used.filter((name) => !sheets.includes(`/styles/${name}.css"`)),
    [],
  );
});
