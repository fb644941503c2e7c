// Lint rules of our own: which room of the house may import which, where payment schemes are known by name, and where the
// web app's queries are named.
//
// The order of the server's modules is read from server/app.ts, and the features of the web app are its folders, so
// that nothing is listed twice.
import { readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";

const ROOT = dirname(dirname(import.meta.dirname));

/** Below the modules, lowest first. */
const GROUND = ["core", "config.ts", "schemas", "schemes", "infra", "local"];
/** Rooms that decide and describe: they get what they need as arguments. */
const PURE = new Set(["core", "schemas", "schemes"]);
/** What the house may import of the payment schemes. */
const SEAM = new Set(["server/schemes/index.ts", "server/schemes/scheme.ts"]);
/** In a module these may hold a connection; the other files decide. */
const WIRING = /(^|\/)(index|wiring|[\w-]*store|[\w-]*routes?|[\w-]*-plugin)\.ts$/;
const CONNECTIONS = /^(pg|undici|@prisma\/.*|node:(http|https|net|tls|dns)(\/.*)?)$|\/generated\//;
const HTTP = /^(fastify|@fastify\/.*|fastify-plugin)$/;

const app = readFileSync(join(ROOT, "server", "app.ts"), "utf8");
const folderOf = new Map(
  [...app.matchAll(/import (\w+) from "\.\/plugins\/([\w-]+)\/index\.ts"/g)].map(
    ([, name, folder]) => [name, folder],
  ),
);
const modules = (/const MODULES = \[([^\]]*)\]/.exec(app)?.[1] ?? "")
  .split(",")
  .map((name) => folderOf.get(name.trim()))
  .filter((folder) => folder !== undefined);
if (modules.length === 0) throw new Error("server/app.ts names no modules");
const rank = new Map([...GROUND, ...modules].map((room, index) => [room, index]));

/** The room a file of the server lies in; undefined for app.ts, main.ts and the scripts, which stand above all. */
function serverRoom(path) {
  const [top, second] = path.split("/").slice(1);
  if (top === "plugins") return second;
  // The catalogue of errors is a part of the core; it stands above it for everybody to see.
  if (top === "errors.ts") return "core";
  return rank.has(top) ? top : undefined;
}

/** What others install knows nothing of this house, nor of one another. */
function installableFault(from, to) {
  const [, own] = from.split("/");
  return to.startsWith(`packages/${own}/`)
    ? undefined
    : "A package takes nothing from outside its own folder: others install it without the rest.";
}

function serverFault(from, to) {
  if (to.startsWith("packages/"))
    return to.startsWith("packages/paywall/src/")
      ? undefined
      : "Of the packages the server takes only the paywall's source.";
  const room = serverRoom(from);
  const other = serverRoom(to);
  if (other === "schemes" && room !== "schemes" && !SEAM.has(to))
    return "A scheme is known to server/schemes/index.ts alone; ask its interface.";
  if (to.startsWith("web/")) return "The server knows nothing of the web app.";
  if (from.startsWith("server/plugins/") && !rank.has(room))
    return `server/plugins/${room} is not among the modules of server/app.ts.`;
  if (room === undefined || other === undefined || room === other) return undefined;
  return rank.get(other) > rank.get(room)
    ? `${room} stands before ${other} (the order is that of server/app.ts): it cannot import from it.`
    : undefined;
}

/** Of the web app, lowest first. What several features need is in shared/: features do not know each other. */
const WEB_LAYERS = ["lib", "components", "shared", "features", "app"];

function webFault(from, to, isType) {
  if (to.startsWith("server/"))
    return to.startsWith("server/schemas/") && isType
      ? undefined
      : "The web app takes the types of server/schemas, and no code of the server.";
  const [layer, feature] = from.split("/").slice(2);
  const [otherLayer, otherFeature] = to.split("/").slice(2);
  // The entry stands above all; styles/ holds no code.
  if (layer === "main.tsx" || otherLayer === "styles") return undefined;
  if (!WEB_LAYERS.includes(layer)) return `web/src/${layer} is not a layer of the web app.`;
  if (WEB_LAYERS.indexOf(otherLayer) > WEB_LAYERS.indexOf(layer))
    return `${layer} stands below ${otherLayer}: it cannot import from it.`;
  return layer === "features" && otherLayer === "features" && feature !== otherFeature
    ? `Feature ${feature} does not know feature ${otherFeature}; a screen in app/ puts them together.`
    : undefined;
}

/** For packages, and for files by their path. */
function packageFault(from, source) {
  if (!from.startsWith("server/")) return undefined;
  const room = serverRoom(from);
  const isPure = PURE.has(room);
  if (
    CONNECTIONS.test(source) &&
    (isPure || (from.startsWith("server/plugins/") && !WIRING.test(from)))
  )
    return "This file decides; what it needs from outside comes as an argument.";
  if (HTTP.test(source) && isPure) return "This room knows nothing of HTTP.";
  return undefined;
}

const rooms = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    if (!/^(server|packages|web\/src)\//.test(from)) return {};
    const look = (node) => {
      const source = node.source?.value;
      if (typeof source !== "string") return;
      const isType = node.importKind === "type" || node.exportKind === "type";
      let fault = isType ? undefined : packageFault(from, source);
      if (source.startsWith(".")) {
        const to = relative(ROOT, resolve(dirname(context.filename), source))
          .split(sep)
          .join("/");
        if (from.startsWith("packages/")) fault ??= installableFault(from, to);
        else fault ??= from.startsWith("web/") ? webFault(from, to, isType) : serverFault(from, to);
      }
      if (fault !== undefined) context.report({ node, message: fault });
    };
    return { ImportDeclaration: look, ExportNamedDeclaration: look, ExportAllDeclaration: look };
  },
};

const registry = readFileSync(join(ROOT, "server", "schemes", "index.ts"), "utf8");
const listedSchemes = /export const SCHEMES[^=]*= \[([^\]]*)\]/.exec(registry)?.[1] ?? "";
/** `exact-permit2` is a name, and so are `exact` and `permit2`. */
const SCHEME_NAMES = new Set(
  [...registry.matchAll(/import \{ (\w+) \} from "\.\/([\w-]+)\/index\.ts"/g)]
    .filter(([, name]) => listedSchemes.split(",").some((listed) => listed.trim() === name))
    .flatMap(([, , folder]) => [folder, ...folder.split("-")]),
);
if (SCHEME_NAMES.size === 0) throw new Error("server/schemes/index.ts lists no schemes");
/**
 * The schemes; what is stored of each; what a package says of them that others install without us; and the typed data
 * that the web app signs itself.
 */
const KNOWS_SCHEMES =
  /^(server\/schemes\/|server\/core\/authorization\.ts$|packages\/paywall\/src\/scheme[\w-]*\.ts$|web\/src\/lib\/wallet\/typed-data\.ts$)/;
const SCHEME_MEMBER = /^(scheme|transferMethod|assetTransferMethod)$/;

const namesScheme = (node) => {
  const name = node.type === "ChainExpression" ? node.expression : node;
  return (
    name.type === "MemberExpression" &&
    SCHEME_MEMBER.test(name.computed ? name.property.value : name.property.name)
  );
};
const isText = (node) => node?.type === "Literal" && typeof node.value === "string";

/** What differs between schemes is asked of the scheme: who compares names has to be found again for each new one. */
const schemes = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    if (!/^(server|packages|web\/src)\//.test(from) || KNOWS_SCHEMES.test(from)) return {};
    const report = (node) => {
      context.report({
        node,
        message: "Payment schemes are known by name in server/schemes alone: ask the scheme.",
      });
    };
    return {
      Literal(node) {
        if (SCHEME_NAMES.has(node.value)) report(node);
      },
      BinaryExpression(node) {
        const { left, right, operator } = node;
        if (!/^[!=]==?$/.test(operator)) return;
        const isCompared =
          (namesScheme(left) && isText(right)) || (namesScheme(right) && isText(left));
        // A name of ours is reported for itself.
        if (isCompared && !SCHEME_NAMES.has(left.value) && !SCHEME_NAMES.has(right.value))
          report(node);
      },
      SwitchStatement(node) {
        if (namesScheme(node.discriminant)) report(node);
      },
    };
  },
};

/** Methods of a query client that take the key itself as their first argument. */
const BY_KEY = /^(get|set)Query(Data|State|Defaults)$/;

/** A key of the one table, or that of an options object, which has it from there. */
const isNamed = (node) =>
  (node?.type === "MemberExpression" && node.property.name === "queryKey") ||
  (node?.type === "CallExpression" ? node.callee : node)?.object?.name === "keys";

/** A query that is named by hand is not found by the change that makes its answer untrue. */
const queryKeys = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    if (!from.startsWith("web/src/") || from === "web/src/lib/query-keys.ts") return {};
    const report = (node) => {
      context.report({ node, message: "Queries are named in web/src/lib/query-keys.ts." });
    };
    return {
      Property({ parent, key, value }) {
        if (parent.type === "ObjectExpression" && key.name === "queryKey" && !isNamed(value))
          report(value);
      },
      CallExpression({ callee, arguments: [first] }) {
        if (BY_KEY.test(callee.property?.name ?? "") && !isNamed(first)) report(first);
      },
      MemberExpression(node) {
        const { object } = node;
        if (node.computed && (object.name ?? object.property?.name) === "queryKey") report(node);
      },
    };
  },
};

export default { meta: { name: "purser" }, rules: { rooms, schemes, "query-keys": queryKeys } };
