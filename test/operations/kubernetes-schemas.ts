// What a version of Kubernetes accepts, as the files that kubeconform reads: from Kubernetes' own Go module, because the
// registry of schemas that kubeconform downloads from is one more host that a machine may not reach.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { goWith } from "../helpers/go.ts";

interface Schema {
  $ref?: string;
  type?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | false;
  oneOf?: Schema[];
  "x-kubernetes-group-version-kind"?: { group: string; kind: string; version: string }[];
  "x-kubernetes-preserve-unknown-fields"?: boolean;
}

/** Written as a number, or as a text such as `25%` or `500m`. */
const NUMBER_OR_TEXT = [{ type: "string" }, { type: "number" }];
const IS_NUMBER_OR_TEXT = /\.(IntOrString|Quantity)$/;

/** A field that Kubernetes does not know would be dropped silently, so it is refused. */
function strict(schema: Schema): Schema {
  const { properties, items, additionalProperties } = schema;
  if (items) schema.items = strict(items);
  if (additionalProperties) schema.additionalProperties = strict(additionalProperties);
  if (!properties) return schema;
  for (const property of Object.values(properties)) strict(property);
  if (!schema["x-kubernetes-preserve-unknown-fields"]) schema.additionalProperties ??= false;
  return schema;
}

const acceptedBy = (name: string, schema: Schema): Schema =>
  IS_NUMBER_OR_TEXT.test(name) ? { oneOf: NUMBER_OR_TEXT } : strict(schema);

/**
 * Writes one file for each kind into the folder. Returns what kubeconform's `-schema-location` is to be, or why the
 * schemas are missing.
 */
export async function kubernetesSchemas(
  folder: string,
  version: string,
): Promise<{ location: string } | { missing: string }> {
  const module = `k8s.io/kubernetes@v${version}`;
  const go = await goWith([module]);
  if ("missing" in go) return go;
  // Go keeps the module, 106 MB, for the next run.
  const { Dir } = JSON.parse(
    execFileSync("go", ["mod", "download", "-json", module], {
      encoding: "utf8",
      env: { ...process.env, ...go.env },
    }),
  ) as { Dir: string };
  const { definitions } = JSON.parse(
    readFileSync(join(Dir, "api", "openapi-spec", "swagger.json"), "utf8"),
  ) as { definitions: Record<string, Schema> };
  mkdirSync(folder, { recursive: true });
  const all = Object.entries(definitions).map(([name, schema]) => [name, acceptedBy(name, schema)]);
  writeFileSync(join(folder, "all.json"), JSON.stringify({ definitions: Object.fromEntries(all) }));
  for (const [name, { "x-kubernetes-group-version-kind": kinds = [] }] of Object.entries(
    definitions,
  ))
    for (const { group, kind, version: of } of kinds) {
      const [short = ""] = group.split(".");
      const file = [kind.toLowerCase(), ...(short === "" ? [] : [short]), of].join("-");
      const schema = { $ref: `all.json#/definitions/${name}` };
      writeFileSync(join(folder, `${file}.json`), JSON.stringify(schema));
    }
  return { location: `${folder}/{{ .ResourceKind }}{{ .KindSuffix }}.json` };
}
