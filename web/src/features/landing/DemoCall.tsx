import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { askWithoutPaying, fetchPaid } from "../../lib/snippets.ts";
import { useInfo } from "../../shared/info.ts";
import styles from "./landing.module.css";

/** An example call that works without an account or key. The response is the protocol's own 402. */
export function DemoCall(): ReactNode {
  const info = useInfo();
  const base = info?.publicUrl ?? globalThis.location.origin;
  const demoUrl = `${base}${info?.networks[0]?.demoPath ?? "/api/arc-stats"}`;
  return (
    <section className={styles.section} aria-labelledby="demo">
      <h2 id="demo">See a paid API answer</h2>
      <p className={styles.text}>
        This endpoint sells live chain statistics for 0.001 USDC. Without a payment it returns 402
        and its terms. Your agent pays and gets the data in one call.
      </p>
      <CodeBlock label="Request without paying" code={askWithoutPaying(demoUrl)} />
      <CodeBlock
        label="Let an agent pay"
        code={fetchPaid(base, "$AGENT_API_KEY", { url: demoUrl })}
      />
      <Button component={Link} to="/developers">
        More for developers
      </Button>
    </section>
  );
}
