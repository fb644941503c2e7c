import { Badge, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { CopyButton } from "../../components/CopyButton.tsx";
import { Section } from "../../components/Layout.tsx";
import type { Validation } from "../../lib/wire.ts";
import styles from "./Validate.module.css";

type Finding = Validation["findings"][number];

const SEVERITIES = [
  { severity: "error", title: "Errors", hint: "Nobody can pay, or not this offer." },
  { severity: "warning", title: "Warnings", hint: "Some clients or marketplaces refuse it." },
  { severity: "note", title: "Notes", hint: "Could be better, or could not be checked." },
] as const;
const COLORS = { error: "red", warning: "yellow", note: "gray" } as const;

export const Findings = ({ findings }: { findings: Finding[] }): ReactNode =>
  SEVERITIES.map(({ severity, title, hint }) => {
    const found = findings.filter((one) => one.severity === severity);
    return (
      found.length > 0 && (
        <Section key={severity} flush title={`${title} (${found.length})`} hint={hint}>
          <ul>
            {found.map((one) => (
              <Row key={`${one.code} ${one.where}`} finding={one} />
            ))}
          </ul>
        </Section>
      )
    );
  });

const Row = ({ finding }: { finding: Finding }): ReactNode => (
  <li className={styles.row}>
    <div className={styles.head}>
      <Badge color={COLORS[finding.severity]} mod="plain">
        {finding.code}
      </Badge>
      <code className={styles.where}>{finding.where}</code>
    </div>
    <p>{finding.message}</p>
    {/* The verdict above names the status. */}
    {finding.thirdParty && finding.where !== "status" && (
      <Text size="sm" c="dimmed">
        The API says: <q>{finding.thirdParty.found}</q>
      </Text>
    )}
    {finding.fix !== null && (
      <div className={styles.fix}>
        <code>{finding.fix}</code>
        <CopyButton value={finding.fix} what={`the fix of ${finding.code}`} />
      </div>
    )}
  </li>
);
