import { Checkbox } from "@mantine/core";
import type { ReactNode } from "react";
import type { NotificationTypeName } from "../../lib/wire.ts";
import styles from "./Notifications.module.css";
import { TYPES } from "./words.ts";

interface TypeChoiceProps {
  label: string;
  names: readonly NotificationTypeName[];
  chosen: readonly string[];
  onChange: (chosen: string[]) => void;
}

/** Check boxes in groups. */
export function TypeChoice({ label, names, chosen, onChange }: TypeChoiceProps): ReactNode {
  const groups = new Set(names.map((name) => TYPES[name].group));
  return (
    <div role="group" aria-label={label} className={styles.types}>
      {[...groups].map((group) => (
        <fieldset key={group} className={styles.group}>
          <legend>{group}</legend>
          {names
            .filter((name) => TYPES[name].group === group)
            .map((name) => (
              <Checkbox
                key={name}
                label={TYPES[name].label}
                checked={chosen.includes(name)}
                onChange={({ currentTarget: { checked } }) => {
                  onChange(checked ? [...chosen, name] : chosen.filter((one) => one !== name));
                }}
              />
            ))}
        </fieldset>
      ))}
    </div>
  );
}
