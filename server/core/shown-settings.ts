/** The configuration as operators may see it: no secret, and of a URL only its host, because the rest may be a key. */
import { SECTIONS } from "./configuration.ts";
import { listed, type Documented } from "./setting.ts";

interface ShownSetting {
  key: string;
  isSet: boolean;
  /** Null for a secret, and where nothing is set. */
  value: string | null;
}

export interface ShownGroup {
  title: string;
  settings: ShownSetting[];
}

const MAX_LENGTH = 500;
const CHAIN = /_[0-9]+$/;

/** In the groups and the order of the configuration's reference. */
export function shownSettings(texts: ReadonlyMap<string, string>): ShownGroup[] {
  return Object.entries(SECTIONS).map(([title, section]) => ({
    title,
    settings: Object.entries<Documented>(section).flatMap(([key, { secret, default: usual }]) => {
      const ofChains = [...texts.keys()].filter((each) => each.replace(CHAIN, "") === key);
      const keys = title === "Each chain" ? ofChains.toSorted() : [key];
      return keys.map((each) => {
        const text = texts.get(each) ?? usual;
        const value = text === undefined || text === "" ? null : shown(key, text, secret === true);
        return { key: each, isSet: texts.has(each), value };
      });
    }),
  }));
}

function shown(key: string, text: string, isSecret: boolean): string | null {
  if (isSecret && key !== "RPC_URL") return null;
  const parts = text.includes("://") ? listed(text).map(hostOf).join(", ") : text;
  return parts.length > MAX_LENGTH ? `${parts.slice(0, MAX_LENGTH)}…` : parts;
}

const hostOf = (text: string): string => (URL.canParse(text) ? new URL(text).host : "not a URL");
