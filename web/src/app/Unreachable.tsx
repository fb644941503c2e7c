import { useWindowEvent } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Note } from "../components/Layout.tsx";
import { untilReachable, useReachable } from "../lib/reachable.ts";
import styles from "./Shell.module.css";

/** Shown above any screen while the server cannot be reached; the screen stays as it is. */
export function Unreachable(): ReactNode {
  const isReachable = useReachable();
  useWindowEvent("offline", () => void untilReachable());
  return (
    <div role="status" className={styles.unreachable}>
      {!isReachable && (
        <Note color="yellow">
          <strong>The server cannot be reached.</strong> The app tries again by itself.
        </Note>
      )}
    </div>
  );
}
