/**
 * What was typed into a form and not saved. It survives other screens and a reload of this tab, and ends with the session.
 * Only for forms without secrets.
 */
import { useSessionStorage } from "@mantine/hooks";

const PREFIX = "purser-draft-";

export const useDraft = <T>(
  name: string,
): [
  draft: T | undefined,
  set: (draft: T | ((before: T | undefined) => T)) => void,
  drop: () => void,
] => useSessionStorage<T | undefined>({ key: PREFIX + name, getInitialValueInEffect: false });

export function dropDrafts(): void {
  for (const key of Object.keys(sessionStorage))
    if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
}
