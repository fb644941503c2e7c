import { Menu } from "@mantine/core";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { UserIcon } from "../components/icons.tsx";
import { shortAddress } from "../lib/address.ts";
import type { Session } from "../lib/wire.ts";
import { hasWallet } from "../shared/session/session-context.ts";
import { useLeave } from "../shared/session/use-leave.ts";
import styles from "./Shell.module.css";

export function AccountMenu({ session }: { session: Session }): ReactNode {
  const leave = useLeave();
  const navigate = useNavigate();
  return (
    <Menu position="top-start" width={220} shadow="md">
      <Menu.Target>
        <button type="button" className={styles.account}>
          <UserIcon size={16} />
          <span className="sr-only">Account</span>
          <span className={styles.accountName}>
            {hasWallet(session) ? shortAddress(session.address) : "Passkey"}
          </span>
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        {hasWallet(session) && (
          <Menu.Item
            onClick={() => void navigator.clipboard.writeText(session.address).catch(() => {})}
          >
            Copy address
          </Menu.Item>
        )}
        <Menu.Item onClick={() => void navigate("/settings")}>Settings</Menu.Item>
        <Menu.Divider />
        <Menu.Item onClick={() => void leave()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
